package kservehttp

import (
	"io"
	"net"
	"testing"
	"time"

	"shoal/internal/accesslog"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/race"
)

// A keeper sends the same request on one connection again and again without
// memory of its own.
type keeper struct {
	conn    net.Conn
	request []byte
	answer  []byte
}

// newKeeper connects and learns how long the answer is, which has that status.
func newKeeper(t testing.TB, addr string, request []byte, status int) *keeper {
	t.Helper()
	resp, body := exchange(t, addr, request)
	if resp == nil || resp.StatusCode != status {
		t.Fatalf("got %v %s, want %d", resp, body, status)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	k := &keeper{conn: c, request: request}
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := c.Read(buf[len(k.answer):])
		if err != nil {
			t.Fatal(err)
		}
		k.answer = buf[:len(k.answer)+n]
		if len(k.answer) > len(body) && string(k.answer[len(k.answer)-len(body):]) == string(body) {
			return k
		}
	}
}

func (k *keeper) again() error {
	if _, err := k.conn.Write(k.request); err != nil {
		return err
	}
	_, err := io.ReadFull(k.conn, k.answer)
	return err
}

// requests of the hot path.
func hotRequests() map[string][]byte {
	tensor := make([]byte, 602112)
	head := `{"inputs":[{"name":"INPUT0","shape":[150528],"datatype":"FP32","parameters":{"binary_data_size":602112}}],"parameters":{"binary_data_output":true}}`
	return map[string][]byte{
		"small JSON": post("/v2/models/fast/infer", small),
		"large binary": post("/v2/models/var/infer", append([]byte(head), tensor...),
			"Inference-Header-Content-Length: "+itoa(len(head))),
	}
}

func TestInferAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	e := startEngine(t, oddModels)
	for name, request := range hotRequests() {
		for access, log := range accessLogs() {
			t.Run(name+access, func(t *testing.T) {
				addr := start(t, e, Options{Server: httpserver.Options{Access: log}})
				k := newKeeper(t, addr, request, 200)
				n := testing.AllocsPerRun(500, func() {
					if err := k.again(); err != nil {
						t.Fatal(err)
					}
				})
				if n != 0 {
					t.Errorf("got %v allocations per request, want 0", n)
				}
			})
		}
	}
}

// accessLogs are the ways to serve: without an access log, and with one.
func accessLogs() map[string]*accesslog.Log {
	return map[string]*accesslog.Log{"": nil, ", access log": accesslog.New(io.Discard, accesslog.JSON)}
}

// TestARefusalAllocatesNothing because there are most of them when time is short.
func TestARefusalAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	g := newGate()
	limit := `dynamic_batching { default_queue_policy { max_queue_size: 1 } }`
	e := startEngine(t, map[string]string{"fake": fakeModel["fake"] + limit}, g)
	addr := start(t, e, Options{})
	send(t, dial(t, "tcp", addr), fakeRequest)
	<-g.running
	send(t, dial(t, "tcp", addr), fakeRequest)
	eventually(t, "the second request is queued", func() bool { return pending(t, e) == 1 })
	k := newKeeper(t, addr, fakeRequest, 503)
	n := testing.AllocsPerRun(500, func() {
		if err := k.again(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("got %v allocations per refused request, want 0", n)
	}
	g.open <- struct{}{}
	g.open <- struct{}{}
}

func BenchmarkInfer(b *testing.B) {
	e := startEngine(b, oddModels)
	for name, request := range hotRequests() {
		for access, log := range accessLogs() {
			b.Run(name+access, func(b *testing.B) {
				addr := start(b, e, Options{Server: httpserver.Options{Access: log}})
				k := newKeeper(b, addr, request, 200)
				b.ReportAllocs()
				for b.Loop() {
					if err := k.again(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
