package measure

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/bench/internal/peer"
)

var small = peer.Model{Name: "m", Inputs: []peer.Tensor{peer.Random("x", 4)}, Answer: 4}

func TestToolsAreParsed(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	const noError = ""
	tests := []struct {
		name   string
		tool   Tool
		output string
		want   Outcome
		err    string
	}{
		{
			"wrk", Wrk("wrk"), `Running 2s test` + "\n" + `figures: {"requests":300,"duration":2000000,"errors":0,"p50":1000,"p95":2000,"p99":3000}` + "\n",
			Outcome{Requests: 300, Throughput: 150, P50: ms(1), P95: ms(2), P99: ms(3)},
			noError,
		},
		{"wrk with failures", Wrk("wrk"), `figures: {"requests":298,"duration":2000000,"errors":2,"p50":1,"p95":1,"p99":1}`, Outcome{}, "2 of 300 requests failed"},
		{"wrk without an answer", Wrk("wrk"), `figures: {"requests":0,"duration":1000000,"errors":0,"p50":0,"p95":0,"p99":0}`, Outcome{}, "raise --duration"},
		{"wrk without its script", Wrk("wrk"), "Requests/sec: 10", Outcome{}, "no line"},
		{
			"ghz", Ghz("ghz", "proto"), `{"count":40,"rps":20,"statusCodeDistribution":{"OK":40},"latencyDistribution":[
			{"percentage":50,"latency":1000000},{"percentage":95,"latency":2000000},{"percentage":99,"latency":3000000}]}`,
			Outcome{Requests: 40, Throughput: 20, P50: ms(1), P95: ms(2), P99: ms(3)},
			noError,
		},
		{
			"ghz with failures", Ghz("ghz", "proto"), `{"count":4,"rps":2,"statusCodeDistribution":{"OK":3,"Unavailable":1},"latencyDistribution":[{"percentage":50,"latency":1}]}`,
			Outcome{},
			"1 of 4 requests failed",
		},
		{"ghz without an answer", Ghz("ghz", "proto"), `{"count":0}`, Outcome{}, "raise --duration"},
		{"ghz without JSON", Ghz("ghz", "proto"), `Summary:`, Outcome{}, "invalid character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.tool.parse([]byte(tt.output))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestMissingToolSaysHowToGetIt(t *testing.T) {
	for tool, want := range map[string]Tool{
		"package wrk": Wrk(filepath.Join(t.TempDir(), "wrk")),
		"go install":  Ghz(filepath.Join(t.TempDir(), "ghz"), "proto"),
	} {
		if err := want.Find(); err == nil || !strings.Contains(err.Error(), tool) {
			t.Errorf("got %v, want an error with %q", err, tool)
		}
	}
}

// answers serves the model m: a JSON part and four numbers.
func answers(t *testing.T) *peer.Server {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}"+strings.Repeat("\x00", 16)) })
}

func TestToolRunsAProgramAndReadsTheServer(t *testing.T) {
	s := answers(t)
	// The program sends nothing: the two requests of the check are all that
	// the statistics have.
	path := filepath.Join(t.TempDir(), "wrk")
	script := "#!/bin/sh\necho 'figures: {\"requests\":7,\"duration\":1000000,\"errors\":0,\"p50\":10,\"p95\":20,\"p99\":30}'\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	target, err := Binary(s.HTTP, small)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Wrk(path).Run(t.Context(), s, small, Load{Model: "m", Target: target, Callers: 2, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests != 7 || got.Throughput != 7 || got.P99 != 30 {
		t.Errorf("got %+v, want the seven requests and the p99 of 30 us that the program has printed", got)
	}
}

func TestWrkLoadsAServer(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skip("no wrk here")
	}
	s := answers(t)
	target, err := Binary(s.HTTP, small)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Wrk("wrk").Run(t.Context(), s, small, Load{Model: "m", Target: target, Callers: 2, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests < 10 || got.P50 <= 0 || got.P99 < got.P50 || got.MeanBatch != 2 {
		t.Errorf("got %+v, want many requests, latencies in order and the server's mean batch of 2", got)
	}
}

// TestPausedGeneratorLoadsInSlices runs a program that sends for ever: this one, in
// TestSendsForEver.
func TestPausedGeneratorLoadsInSlices(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	sender := Tool{Name: "sender", Path: os.Args[0], prepare: func(_ string, s *peer.Server, m peer.Model, _ int, _ time.Duration) ([]string, error) {
		return []string{"-test.run=^TestSendsForEver$", "http://" + s.HTTP + "/v2/models/" + m.Name + "/infer"}, nil
	}}
	p, err := sender.Pause(t.Context(), s, small, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := p.Slice(t.Context(), time.Millisecond, 50*time.Millisecond)
		if err != nil || got.Requests == 0 || got.Throughput == 0 || got.MeanBatch != 2 {
			t.Errorf("got %+v, %v, want requests in batches of two", got, err)
		}
	}
	p.Close()
	if p.cmd.ProcessState == nil {
		t.Error("got a generator that runs on after Close")
	}
}

func TestSendsForEver(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("a part of TestPausedGeneratorLoadsInSlices")
	}
	for {
		response, err := http.Post(flag.Arg(0), "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}
