package top

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		name, address, metrics string
		want                   Target
		err                    string
	}{
		{"a host and a port", "gpu1:9000", "", Target{URL: "http://gpu1:9000", Metrics: "http://gpu1:9002/metrics"}, ""},
		{"a URL with a slash", "http://localhost:8000/", "", Target{URL: "http://localhost:8000", Metrics: "http://localhost:8002/metrics"}, ""},
		{"an address of IPv6", "http://[::1]:8000", "", Target{URL: "http://[::1]:8000", Metrics: "http://[::1]:8002/metrics"}, ""},
		{"no port", "https://models.example", "", Target{URL: "https://models.example", Metrics: "https://models.example:445/metrics"}, ""},
		{"metrics elsewhere", "h:1", "other:9", Target{URL: "http://h:1", Metrics: "http://other:9/metrics"}, ""},
		{"metrics with a path", "h:1", "http://other/m?x=1", Target{URL: "http://h:1", Metrics: "http://other/m?x=1"}, ""},
		{"a socket", "unix:///run/s", "", Target{URL: "unix:///run/s", Metrics: "http://localhost:8002/metrics"}, ""},
		{"two sockets", "unix:///run/s", "unix:///run/m", Target{URL: "unix:///run/s", Metrics: "unix:///run/m"}, ""},
		{"metrics on a socket", "h:1", "unix:///run/m", Target{URL: "http://h:1", Metrics: "unix:///run/m"}, ""},
		{"another protocol", "grpc://h:1", "", Target{}, `"grpc://h:1" is not the URL of a server`},
		{"nothing", "", "", Target{}, "is not the URL of a server"},
		{"a port that is none", "http://h:x", "", Target{}, "is not a URL"},
		{"metrics of another protocol", "h:1", "file:///etc/x", Target{}, `"file:///etc/x" is not the URL of a server`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseTarget(c.address, c.metrics)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
		})
	}
}

// replay serves the recorded scrape; answers takes the place of some of it.
func replay(t *testing.T, answers map[string]http.HandlerFunc) Target {
	t.Helper()
	file := func(name, kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			b, err := os.ReadFile("testdata/shoal/" + name)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(b)
		}
	}
	all := map[string]http.HandlerFunc{
		"GET /v2/models/stats":      file("stats1.json", "application/json"),
		"POST /v2/repository/index": file("index1.json", "application/json"),
		"GET /metrics":              file("metrics1.pb", header(".pb").Get("Content-Type")),
	}
	maps.Copy(all, answers)
	mux := http.NewServeMux()
	for route, h := range all {
		mux.HandleFunc(route, h)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return Target{URL: s.URL, Metrics: s.URL + "/metrics"}
}

func fails(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func TestSampleHasWhatTheServerTells(t *testing.T) {
	s, err := NewClient(replay(t, nil), time.Minute).Sample(t.Context())
	if err != nil || s.NoMetrics != nil {
		t.Fatal(err, s.NoMetrics)
	}
	var names []string
	for _, m := range s.Models {
		names = append(names, m.Name+" "+m.Version+" "+m.State)
	}
	if diff := cmp.Diff([]string{"broken 1 UNAVAILABLE", "echo 1 READY", "slow 1 READY"}, names); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	if slow := s.find("slow", "1"); slow.Stats.Success != 1385 || or(slow.Refused) != 321 || or(slow.Instances) != 1 || slow.RequestTime.count() != 1385 {
		t.Errorf("got %v answered, %v refused, %v instances and %v timed, want the recorded 1385, 321, 1 and 1385", slow.Stats.Success, or(slow.Refused), or(slow.Instances), slow.RequestTime.count())
	}
	if s.CPU == nil {
		t.Error("got no use of the processor")
	}
}

func TestSampleHasTheModelsOfAnEnsemble(t *testing.T) {
	target := replay(t, map[string]http.HandlerFunc{
		"GET /v2/models/slow/config": fails(200, `{"name":"slow","ensemble_scheduling":{"step":[{"model_name":"echo","model_version":-1}]}}`),
		"GET /v2/models/echo/config": fails(200, `{"name":"echo"}`),
		"GET /v2/models/none/config": fails(400, `{"error":"Request for unknown model: 'none' is not found"}`),
	})
	for _, c := range []struct {
		model, want string
	}{{"slow", "echo slow"}, {"echo", "echo"}, {"none", `has no model "none"; there are echo, slow, broken`}} {
		target.Models = []string{c.model}
		s, err := NewClient(target, time.Minute).Sample(t.Context())
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %s", c.model, err, c.want)
			}
			continue
		}
		var names []string
		for _, m := range s.Models {
			names = append(names, m.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.model, got, c.want)
		}
	}
}

func TestSampleSaysWhatIsAmiss(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		name    string
		target  Target
		err     string
		noMore  string // in NoMetrics
		models  int
		timeout time.Duration
	}{
		{"no server", Target{URL: gone.URL}, "connection refused; is a server running there? Name another with: shoal top URL", "", 0, time.Minute},
		{"another kind of server", replay(t, map[string]http.HandlerFunc{"GET /v2/models/stats": fails(200, "<html>")}), "does not answer like an inference server", "", 0, time.Minute},
		{"one that refuses", replay(t, map[string]http.HandlerFunc{"GET /v2/models/stats": fails(403, `{"error":"restricted"}`)}), "answered 403 Forbidden: restricted", "", 0, time.Minute},
		{"one that is silent", replay(t, map[string]http.HandlerFunc{"GET /v2/models/stats": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}), "it does not answer", "", 0, 20 * time.Millisecond},
		{"no index", replay(t, map[string]http.HandlerFunc{"POST /v2/repository/index": fails(403, "")}), "", "", 2, time.Minute},
		{"a broken index", replay(t, map[string]http.HandlerFunc{"POST /v2/repository/index": fails(200, "{")}), "the repository index of", "", 0, time.Minute},
		{"no metrics", replay(t, map[string]http.HandlerFunc{"GET /metrics": fails(404, "")}), "", "answered 404 Not Found; name the right place with --metrics-url", 3, time.Minute},
		{"broken metrics", replay(t, map[string]http.HandlerFunc{"GET /metrics": fails(200, "a b c d")}), "", "cannot be read", 3, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewClient(c.target, c.timeout).Sample(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Models) != c.models {
				t.Errorf("got %d models, want %d", len(s.Models), c.models)
			}
			if c.noMore != "" && (s.NoMetrics == nil || !strings.Contains(s.NoMetrics.Error(), c.noMore)) {
				t.Errorf("got %v, want %q", s.NoMetrics, c.noMore)
			}
		})
	}
}

func TestPollerStartsAnewAfterAFailure(t *testing.T) {
	down := false
	stats := func(w http.ResponseWriter, r *http.Request) {
		if down {
			fails(503, "")(w, r)
			return
		}
		fails(200, `{"model_stats":[{"name":"m","version":"1","inference_stats":{"success":{"count":5}}}]}`)(w, r)
	}
	p := NewPoller([]Target{replay(t, map[string]http.HandlerFunc{"GET /v2/models/stats": stats})}, time.Minute)
	known := func() bool {
		r := p.Poll(t.Context())
		i := -1
		for j := range r.Models {
			if r.Models[j].Model == "m" {
				i = j
			}
		}
		return i >= 0 && r.Models[i].Requests != nil
	}
	if known() {
		t.Error("the first time: got a rate, want none yet")
	}
	if !known() {
		t.Error("the second time: got no rate")
	}
	down = true
	if r := p.Poll(t.Context()); !r.Failed() || r.Reached() || len(r.Faults()) != 1 || len(r.Models) != 0 {
		t.Errorf("while it is down: got %+v, want one fault and no models", r)
	}
	down = false
	if known() {
		t.Error("back again: got a rate over the gap, want none yet")
	}
	if !known() {
		t.Error("back for a while: got no rate")
	}
}

func TestOnceGivesOneIntervalAsJSON(t *testing.T) {
	r, err := Once(t.Context(), NewPoller([]Target{replay(t, nil), replay(t, nil)}, time.Minute), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Servers []map[string]any
		Models  []map[string]any
		Total   map[string]any
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Servers) != 2 || len(got.Models) != 6 {
		t.Fatalf("got %d servers and %d models, want 2 and 6:\n%s", len(got.Servers), len(got.Models), b.String())
	}
	slow := got.Models[2]
	for key, want := range map[string]any{"model": "slow", "state": "READY", "requests_per_second": 0.0, "p99_seconds": nil, "requests_total": 1385.0, "instances": 1.0} {
		if v, there := slow[key]; !there || v != want {
			t.Errorf("%s: got %v, want %v", key, v, want)
		}
	}
	if got.Total["instances"] != 6.0 {
		t.Errorf("got %v instances in all, want 6", got.Total["instances"])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Once(ctx, NewPoller([]Target{replay(t, nil)}, time.Minute), time.Hour); err == nil {
		t.Error("cancelled: got no error")
	}
}

func FuzzSampleFromAnyBytes(f *testing.F) {
	for _, name := range []string{"stats1.json", "index1.json", "metrics1.txt", "metrics1.pb"} {
		b, err := os.ReadFile("testdata/shoal/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		at := epoch
		before := &Sample{At: at}
		now := &Sample{At: at.Add(time.Second)}
		for _, s := range []*Sample{before, now} {
			// Whatever comes, it is read or refused.
			_ = s.readStats([]byte(`{"model_stats":[{"name":"echo","version":"1"},{"name":"slow","version":"1"}]}`))
			_ = s.readStats(b)
			_ = s.readIndex(b)
			_ = s.readMetrics(header(".txt"), b)
			_ = s.readMetrics(header(".pb"), b)
		}
		r := reportOf(compare("u", before, now))
		var out strings.Builder
		if err := r.WriteJSON(&out); err != nil {
			t.Errorf("a report that cannot be written: %v", err)
		}
		if err := r.WriteTable(&out); err != nil {
			t.Error(err)
		}
		for _, c := range out.String() {
			if c == 0x1b {
				t.Error("got an escape sequence in the output")
			}
		}
	})
}
