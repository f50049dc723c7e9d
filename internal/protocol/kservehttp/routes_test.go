package kservehttp

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/protocol/kserve"
	"shoal/internal/status"
)

func TestPathsAreTakenApart(t *testing.T) {
	const latest = infer.LatestVersion
	for _, c := range []struct {
		path string
		want route
	}{
		{"/v2", route{action: actServer}},
		{"/v2?x=1", route{action: actServer}},
		{"http://host:8000/v2", route{action: actServer}},
		{"/v2/", route{}},
		{"/v20", route{}},
		{"/", route{}},
		{"*", route{}},
		{"/v2/health/live", route{action: actLive}},
		{"/v2/health/ready", route{action: actReady}},
		{"/v2/health/ready/", route{}},
		{"/v2/models", route{}},
		{"/v2/models/", route{}},
		{"/v2/models/m", route{action: actModel, model: "m", version: latest}},
		{"/v2/models/m%20n", route{action: actModel, model: "m%20n", version: latest}},
		{"/v2/models/m/", route{}},
		{"/v2/models/m/ready", route{action: actModelReady, model: "m", version: latest}},
		{"/v2/models/m/config", route{action: actConfig, model: "m", version: latest}},
		{"/v2/models/m/infer", route{action: actInfer, model: "m", version: latest}},
		{"/v2/models/m/infer/x", route{}},
		{"/v2/models/m/stats", route{action: actStats, model: "m", version: latest}},
		{"/v2/models/stats", route{action: actStats, version: latest}},
		{"/v2/models/stats/infer", route{action: actInfer, model: "stats", version: latest}},
		{"/v2/models/m/versions/7", route{action: actModel, model: "m", version: 7}},
		{"/v2/models/m/versions/0/infer", route{action: actInfer, model: "m", version: 0}},
		{"/v2/models/m/versions/x", route{}},
		{"/v2/models/m/versions/-1", route{}},
		{"/v2/models/m/versions/", route{}},
		{"/v2/models/m/versions/7/", route{}},
		{"/v2/models/m/versions/99999999999999999999/infer", route{}},
		{"/v2/models/m/generate", route{action: actGenerate, model: "m", version: infer.LatestVersion}},
		{"/v2/models/m/versions/3/generate_stream", route{action: actGenerateStream, model: "m", version: 3}},
		{"/v2/models/m/generate/x", route{}},
		{"/v2/repository/index", route{action: actIndex}},
		{"/v2/repository/r/index", route{action: actIndex, repository: true}},
		{"/v2/repository/models/m/load", route{action: actLoad, model: "m"}},
		{"/v2/repository/models/m/unload", route{action: actUnload, model: "m"}},
		{"/v2/repository/r/models/m/load", route{action: actLoad, model: "m", repository: true}},
		{"/v2/repository/models/models/m/load", route{action: actLoad, model: "m", repository: true}},
		{"/v2/repository/models//load", route{}},
		{"/v2/repository/models/m", route{}},
		{"/v2/repository/models/m/load/x", route{}},
		{"/v2/repository//index", route{}},
		{"/v2/repository/", route{}},
	} {
		got := parseRoute([]byte(c.path))
		if got.action == actNone {
			got = route{}
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.path, got, c.want)
		}
	}
}

// TestEveryCodeHasAStatus walks all codes, so that a new one is not forgotten.
func TestEveryCodeHasAStatus(t *testing.T) {
	want := [status.CodeCount]int{400, 500, 404, 400, 503, 501, 400, 400, 504, 403, 503}
	for code := range status.CodeCount {
		head, text := answer(status.Errorf(code, "words"))
		got := head.Status
		if got != want[code] || text != "words" {
			t.Errorf("%s: got %d %q, want %d and the text", code, got, text, want[code])
		}
		if http.StatusText(got) == "" {
			t.Errorf("%s: %d is no status", code, got)
		}
	}
}

func TestHealthSaysWhenTheServerExits(t *testing.T) {
	e := startEngine(t, oddModels)
	addr := start(t, e, Options{})
	for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
		if resp, body := exchange(t, addr, get(path)); resp == nil || resp.StatusCode != 200 || len(body) > 0 {
			t.Errorf("%s: got %v %s, want 200 and no body", path, resp, body)
		}
	}
	e.Stop()
	for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
		if resp, body := exchange(t, addr, get(path)); resp == nil || resp.StatusCode != 503 || string(body) != `{"error":"Server exiting"}` {
			t.Errorf("%s: got %v %s, want 503 Server exiting", path, resp, body)
		}
	}
}

func TestServerIsLiveButNotReadyBeforeItsModelsAre(t *testing.T) {
	addr := start(t, engine.New(engine.Options{Log: slog.New(slog.DiscardHandler)}), Options{})
	for path, want := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 400, "/v2/models/m": 503} {
		if resp, body := exchange(t, addr, get(path)); resp == nil || resp.StatusCode != want {
			t.Errorf("%s: got %v %s, want %d", path, resp, body, want)
		}
	}
}

func get(path string, headers ...string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n")
}

func TestRestrictedAPIWantsItsHeader(t *testing.T) {
	restricted, err := kserve.ParseRestrictions([]string{"metadata,model-repository:X-Key=secret"})
	if err != nil {
		t.Fatal(err)
	}
	addr := start(t, startEngine(t, oddModels), Options{Restrictions: restricted})
	for _, c := range []struct {
		name    string
		request []byte
		want    int
	}{
		{"no header", get("/v2"), 403},
		{"wrong value", get("/v2", "X-Key: guess"), 403},
		{"right value", get("/v2", "x-key: secret"), 200},
		{"another API", get("/v2/health/live"), 200},
		{"the other restricted API", post("/v2/repository/index", nil), 403},
	} {
		resp, body := exchange(t, addr, c.request)
		if resp == nil || resp.StatusCode != c.want {
			t.Errorf("%s: got %v %s, want %d", c.name, resp, body, c.want)
		}
		if c.want == 403 && string(body) != `{"error":"This API is restricted, expecting header 'X-Key'"}` {
			t.Errorf("%s: got %s", c.name, body)
		}
	}
}

func TestForwardedHeadersBecomeParameters(t *testing.T) {
	r := infer.NewRequest()
	defer r.Release()
	raw := []byte("Host: x\r\nx-tenant: a b\r\nX-Other: 1\r\nmy-tenant-id:7\r\n")
	if err := forwardHeaders(r, raw, regexp.MustCompile("tenant")); err != nil {
		t.Fatal(err)
	}
	if len(r.Params) != 2 || r.Params[0].Name != "x-tenant" || r.Params[0].String != "a b" || r.Params[1].Name != "my-tenant-id" || r.Params[1].String != "7" {
		t.Errorf("got %+v, want x-tenant and my-tenant-id", r.Params)
	}
	err := forwardHeaders(r, []byte("priority: 1\r\n"), regexp.MustCompile("."))
	if status.CodeOf(err) != status.InvalidArgument || status.Public(err) != "Header 'priority' is reserved for Triton usage and cannot be forwarded." {
		t.Errorf("got %v, want a refusal that names the header", err)
	}
}

func TestForwardingReachesTheModel(t *testing.T) {
	g := newGate()
	var got []infer.Param
	run := g.OnRun
	g.OnRun = func(b *infer.Batch) error {
		got = append(got, b.Requests[0].Params...)
		return run(b)
	}
	addr := start(t, startEngine(t, fakeModel, g), Options{Forward: regexp.MustCompile("^X-T")})
	g.open <- struct{}{}
	resp, body := exchange(t, addr, inferRequest("fake", input(goodInput), "X-Trace: 12", "x-trace2: 13"))
	if resp == nil || resp.StatusCode != 200 {
		t.Fatalf("got %v %s, want 200", resp, body)
	}
	if len(got) != 1 || got[0].Name != "X-Trace" || got[0].String != "12" {
		t.Errorf("got %+v, want X-Trace alone", got)
	}
}

func TestPanicIsAnErrorAndALogLine(t *testing.T) {
	log := make(lines, 1)
	addr := start(t, nil, Options{Server: httpserver.Options{Log: slog.New(slog.NewTextHandler(log, nil))}})
	resp, body := exchange(t, addr, get("/v2/health/live")) // there is no engine
	if resp == nil || resp.StatusCode != 500 || strings.Contains(string(body), "goroutine") {
		t.Errorf("got %v %s, want 500 without the stack", resp, body)
	}
	if line := <-log; !strings.Contains(line, "panic: runtime error") || !strings.Contains(line, "handler.go") {
		t.Errorf("got log %q, want the panic and its stack", line)
	}
}

// lines takes what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRawRequests(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	for _, c := range []struct {
		name, model, data, want string
	}{
		{"a string gets its length", "text", "hello", "\x05\x00\x00\x00hello"},
		{"a dimension is deduced", "var", "12345678", "12345678"},
		{"an empty one is a tensor of no elements", "var", "", ""},
	} {
		resp, body := exchange(t, addr, inferRequest(c.model, c.data, "Inference-Header-Content-Length: 0"))
		if resp == nil || resp.StatusCode != 200 || !strings.HasSuffix(string(body), "}"+c.want) {
			t.Errorf("%s: got %v %q, want it to end in %q", c.name, resp, body, c.want)
		}
	}
}

func TestLoadAndUnloadAreRefused(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	for _, c := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"plain load", "/v2/repository/models/var/load", "", 503, "explicit model load / unload is not allowed if polling is enabled"},
		{"plain unload", "/v2/repository/models/var/unload", `{"parameters":{"unload_dependents":true}}`, 503, "explicit model load / unload is not allowed"},
		{"named repository", "/v2/repository/r/models/var/load", "", 501, "'repository_name' specification is not supported"},
		{"unknown parameter", "/v2/repository/models/var/load", `{"parameters":{"foo":"bar"}}`, 500, "unexpected error on creating Triton parameter"},
		{"override", "/v2/repository/models/var/load", `{"parameters":{"config":"{}"}}`, 503, "explicit model load / unload is not allowed"},
		{"broken JSON", "/v2/repository/models/var/load", `{x`, 500, "Missing a name for object member. at 1"},
	} {
		resp, body := exchange(t, addr, post(c.path, []byte(c.body)))
		if resp == nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.text) {
			t.Errorf("%s: got %v %s, want %d with %q", c.name, resp, body, c.status, c.text)
		}
	}
}
