package kservehttp

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/protocol/kserve"
	"shoal/internal/reject"
)

func newRejects(e *engine.Engine) *reject.Counter {
	return reject.New(e.Lookup, slog.New(slog.DiscardHandler))
}

// allRejected returns every count that is not zero, as "model/version reason".
func allRejected(c *reject.Counter, models ...string) map[string]uint64 {
	all := make(map[string]uint64)
	add := func(model string, version int64) {
		for r := range reject.ReasonCount {
			if n := c.Requests(model, version)[reject.HTTP][r]; n > 0 {
				all[fmt.Sprintf("%s/%d %v", model, version, r)] = n
			}
		}
	}
	add("", reject.NoVersion)
	for _, m := range models {
		add(m, reject.NoVersion)
		add(m, 1)
	}
	return all
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func TestRejectedRequestsAreCountedByModelAndReason(t *testing.T) {
	const limit = 100 * time.Millisecond
	cases := []struct {
		name string
		send []byte
		want string // model/version reason; empty when it is not counted
	}{
		{"a good request", inferRequest("var", input(goodInput)), ""},
		{"health", []byte("GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n"), ""},
		{"a probe of a model that is not there", []byte("GET /v2/models/nosuch/ready HTTP/1.1\r\nHost: x\r\n\r\n"), ""},
		{"no HTTP", []byte("\x16\x03\x01\x02\x00\x01\r\n\r\n"), "/-1 malformed"},
		{"a header without a name", []byte("GET /v2 HTTP/1.1\r\n: x\r\n\r\n"), "/-1 malformed"},
		{"headers too large", []byte("GET /v2 HTTP/1.1\r\nA: " + strings.Repeat("x", 20_000) + "\r\n\r\n"), "/-1 too_large"},
		{"headers too slow", []byte("GET /v2 HTTP/1.1\r\n"), "/-1 timeout"},
		{"no such path", []byte("GET /v3 HTTP/1.1\r\nHost: x\r\n\r\n"), "/-1 unknown_route"},
		{"the wrong method", []byte("GET /v2/models/var/infer HTTP/1.1\r\nHost: x\r\n\r\n"), "var/1 unknown_route"},
		{"no such model", inferRequest("nosuch", input(goodInput)), "/-1 unknown_model"},
		{"metadata of no such model", []byte("GET /v2/models/nosuch HTTP/1.1\r\nHost: x\r\n\r\n"), "/-1 unknown_model"},
		{"no such version", post("/v2/models/var/versions/7/infer", []byte(input(goodInput))), "var/-1 unknown_model"},
		{"JSON broken off", inferRequest("var", `{"inputs":[`), "var/1 malformed"},
		{"gzip that is none", inferRequest("var", "xxxx", "Content-Encoding: gzip"), "var/1 malformed"},
		{"a header length that is no number", inferRequest("var", "{}", "Inference-Header-Content-Length: x"), "var/1 malformed"},
		{"an unknown encoding", inferRequest("var", "{}", "Content-Encoding: br"), "var/1 unsupported"},
		{"an unknown input", inferRequest("var", `{"inputs":[{"name":"X",`+goodInput+`}]}`), "var/1 bad_input"},
		{"the wrong type", inferRequest("var", input(`"shape":[2],"datatype":"INT32","data":[1,2]`)), "var/1 bad_input"},
		{"the wrong shape", inferRequest("var", input(`"shape":[2,2],"datatype":"FP32","data":[1,2,3,4]`)), "var/1 bad_input"},
		{"too few elements", inferRequest("var", input(`"shape":[3],"datatype":"FP32","data":[1,2]`)), "var/1 bad_input"},
		{"a generate request that does not fit", generateRequest("var", `{"INPUT0":"x"}`), "var/1 bad_input"},
		{"a generate request that is no JSON", generateRequest("var", `{`), "var/1 malformed"},
		{"JSON that is too large", inferRequest("var", strings.Repeat(" ", 2<<20)), "var/1 too_large"},
		{"a body that is too large", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n"), "var/1 too_large"},
		{"the same, asked before", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"), "var/1 too_large"},
		{"a body that is too slow", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"), "var/1 timeout"},
		{"a decoupled model", inferRequest("decoupled", input(goodInput)), "decoupled/1 unsupported"},
		{"a restricted API", []byte("GET /v2/models/var/config HTTP/1.1\r\nHost: x\r\n\r\n"), "var/1 restricted"},
	}
	e := startEngine(t, oddModels)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			rejects := newRejects(e)
			addr := start(t, e, Options{
				MaxInputSize: 1 << 20,
				Server:       httpserver.Options{MaxBodySize: 8 << 20, HeaderTimeout: limit, StallTimeout: limit, Rejects: rejects},
				Restrictions: kserve.Restrictions{kserve.ModelConfig: {Header: "key", Value: "secret"}},
			})
			exchange(t, addr, tc.send)
			got := allRejected(rejects, "var", "decoupled")
			if tc.want == "" && len(got) > 0 || tc.want != "" && (got[tc.want] != 1 || sum(got) != 1) {
				t.Errorf("counted %v, want %q once", got, tc.want)
			}
		})
	}
	stats, err := e.Statistics("var", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	for reason, n := range stats[0].Failures {
		if n != 0 {
			t.Errorf("nv_inference_request_failure has %d %s, want 0: Triton does not count these", n, reason)
		}
	}
}

func TestWhatStoppingRefusesIsNotReady(t *testing.T) {
	e := startEngine(t, oddModels)
	rejects := newRejects(e)
	addr := start(t, e, Options{Server: httpserver.Options{Rejects: rejects}})
	e.Stop()
	exchange(t, addr, inferRequest("var", input(goodInput)))
	if got := allRejected(rejects, "var"); got["var/1 not_ready"] != 1 || sum(got) != 1 {
		t.Errorf("counted %v, want var/1 not_ready once", got)
	}
}

func TestClosedConnectionsAreCountedByTheirLimit(t *testing.T) {
	g := newGate()
	e := startEngine(t, fakeModel, g)
	rejects := newRejects(e)
	addr := start(t, e, Options{Server: httpserver.Options{MaxConnections: 1, IdleTimeout: 200 * time.Millisecond, Rejects: rejects}})
	first := dial(t, "tcp", addr)
	send(t, first, fakeRequest)
	<-g.running
	exchange(t, addr, []byte("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"))
	g.open <- struct{}{}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Fatal(err)
	}
	for why, want := range map[reject.Close]uint64{reject.MaxConnections: 1, reject.IdleTimeout: 1, reject.ReadTimeout: 0} {
		if got := rejects.Connections(reject.HTTP, why); got != want {
			t.Errorf("%v: counted %d, want %d", why, got, want)
		}
	}
	if got := allRejected(rejects); got["/-1 overloaded"] != 1 {
		t.Errorf("counted %v rejected, want the one connection too many", got)
	}
}
