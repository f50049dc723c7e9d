package kservehttp

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/protocol/httpserver"
)

// budgetOf returns memory of so many bytes, for which requests wait briefly.
func budgetOf(n int64) *inflight.Pool {
	return inflight.NewPool(inflight.New(n, 20*time.Millisecond))
}

func TestAnnouncedBodyClaimsNoMemory(t *testing.T) {
	e := startEngine(t, oddModels)
	memory := budgetOf(4 << 30)
	addr := start(t, e, Options{Server: httpserver.Options{Memory: memory}})
	const clients = 20
	for range clients {
		c := dial(t, "tcp", addr)
		send(t, c, []byte("POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000000\r\nInference-Header-Content-Length: 10\r\n\r\n"+strings.Repeat(" ", 10<<10)))
	}
	most := int64(clients) * (connBytes + 16<<10)
	eventually(t, "the bodies have begun", func() bool { return memory.Budget().Used() >= most })
	if got := memory.Budget().Used(); got > most {
		t.Errorf("got %d bytes claimed for %d bodies of 2 GB that are announced, want %d at most", got, clients, most)
	}
}

// binaryRequest sends n numbers as bytes and wants them back in JSON.
func binaryRequest(model string, n int) []byte {
	json := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}]}`, n, 4*n)
	return post("/v2/models/"+model+"/infer", append([]byte(json), make([]byte, 4*n)...), fmt.Sprintf("Inference-Header-Content-Length: %d", len(json)))
}

// TestWhatDoesNotFitIsRefused sends what needs more memory than there is, of
// each kind.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	e := startEngine(t, oddModels)
	big := strings.Repeat("1,", 300_000) + "1"
	for _, c := range []struct {
		name    string
		limit   int64
		request []byte
	}{
		{"a body that can never fit", 1 << 20, post("/v2/models/identity/infer", make([]byte, 2<<20), "Inference-Header-Content-Length: 0")},
		{"a chunked body", 1 << 20, append([]byte("POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n"), make([]byte, 2<<20)...)},
		{"what a body is unpacked to", 4 << 20, inferRequest("identity", string(gzipOf(make([]byte, 8<<20))), "Content-Encoding: gzip")},
		{"a tensor in JSON", 3 << 20, inferRequest("identity", input(`"datatype":"FP64","shape":[300001],"data":[`+big+`]`))},
		{"strings in JSON", 3 << 20, inferRequest("text", input(`"datatype":"BYTES","shape":[300000,1],"data":["`+strings.Repeat(`a","`, 299_999)+`"]`))},
		{"an answer in JSON", 8 << 20, binaryRequest("identity", 512<<10)},
	} {
		memory := budgetOf(c.limit)
		addr := start(t, e, Options{Server: httpserver.Options{Memory: memory}})
		resp, body := exchange(t, addr, c.request)
		if resp == nil || resp.StatusCode != 503 || !strings.Contains(string(body), "--max-inflight-bytes") {
			t.Errorf("%s: got %v %s, want 503 and the flag", c.name, resp, body)
		}
		if memory.Budget().Refused() == 0 {
			t.Errorf("%s: got no refusal counted", c.name)
		}
		// The next client is served.
		small := inferRequest("identity", input(`"datatype":"FP32","shape":[1],"data":[1]`))
		if resp, body := exchange(t, addr, small); resp == nil || resp.StatusCode != 200 {
			t.Errorf("%s: the next client got %v %s, want 200", c.name, resp, body)
		}
	}
}

func TestBodyIsUnpackedWithinTheRatio(t *testing.T) {
	e := startEngine(t, oddModels)
	addr := start(t, e, Options{Server: httpserver.Options{MaxRatio: 50}})
	for size, want := range map[int]int{8 << 20: 400, 32 << 20: 400} {
		resp, body := exchange(t, addr, inferRequest("identity", string(gzipOf(make([]byte, size))), "Content-Encoding: gzip"))
		if resp == nil || resp.StatusCode == 200 {
			t.Fatalf("%d bytes of zeros: got %v %s, want an error", size, resp, body)
		}
		if over := strings.Contains(string(body), "Decompressed data size exceeds"); over != (size > 16<<20) {
			t.Errorf("%d bytes of zeros: got %d %s, want %d and the ratio to matter only beyond %d", size, resp.StatusCode, body, want, 16<<20)
		}
	}
}

// connBytes is what a connection takes with the default options.
const connBytes = 32 << 10

func TestConnectionsCountAgainstTheBudget(t *testing.T) {
	e := startEngine(t, oddModels)
	memory := budgetOf(1 << 20)
	addr := start(t, e, Options{Server: httpserver.Options{Memory: memory}})
	var conns []net.Conn
	for range 10 {
		conns = append(conns, dial(t, "tcp", addr))
	}
	eventually(t, "all are counted", func() bool { return memory.Budget().Used() == 10*connBytes })
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "none is counted any more", func() bool { return memory.Budget().Used() == 0 })
}

// TestSlowClientsGiveWayWhenMemoryIsShort fills the budget with bodies that stop
// half-way, and then sends one that is as large.
func TestSlowClientsGiveWayWhenMemoryIsShort(t *testing.T) {
	e := startEngine(t, oddModels)
	memory := inflight.NewPool(inflight.New(16<<20, 5*time.Second))
	addr := start(t, e, Options{Server: httpserver.Options{Memory: memory}})
	for range 16 {
		c := dial(t, "tcp", addr)
		send(t, c, []byte("POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n"+strings.Repeat(" ", 600<<10)))
	}
	eventually(t, "the budget is used up", func() bool { return memory.Budget().Used() > 13<<20 })
	for range 3 {
		resp, body := exchange(t, addr, binaryRequest("identity", 64<<10))
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("got %v %s, want 200", resp, body)
		}
	}
}
