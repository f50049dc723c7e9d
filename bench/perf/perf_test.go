package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/internal/load"
)

func TestTrivialServerIsHTTP(t *testing.T) {
	s, err := startTrivial()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	resp, err := http.Post("http://"+s.Address()+"/v2/models/trivial/infer", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength != int64(len(trivialInfer)) {
		t.Errorf("got %d with %d bytes, want 200 with %d", resp.StatusCode, resp.ContentLength, len(trivialInfer))
	}
}

func TestPerfAnalyzersReportIsRead(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
printf '%s\n' 'Concurrency,Inferences/Second,Client Send,p50 latency,p90 latency,p95 latency,p99 latency' '4,1000.5,3,100,150,160,200' > "$2"
echo '    Request count: 3000'
test "$5" != --profile-export-file ||
echo '{"experiments":[{"requests":[{"timestamp":1000,"response_timestamps":[51000]},{"timestamp":2000,"response_timestamps":[3000,152000]}]}]}' > "$6"
`
	if err := os.WriteFile(filepath.Join(dir, "perf_analyzer"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, export := range []bool{false, true} {
		got, err := theirs(context.Background(), options{analyzer: dir, work: dir}, export, "-m", "x")
		if err != nil {
			t.Fatal(err)
		}
		if got.Throughput != 1000.5 || got.Requests != 3000 || got.P50 != 100 || got.P95 != 160 || got.P99 != 200 {
			t.Errorf("got %+v, want what the CSV and the report have", got)
		}
		if h := got.latency; (h != nil) != export || export && (h.Count() != 2 || h.Min() != 50*time.Microsecond || h.Max() != 150*time.Microsecond) {
			t.Errorf("got latencies %+v, want 50 and 150 us when they are asked for", h)
		}
	}
}

func TestFloorsAreHeld(t *testing.T) {
	r := &results{}
	r.most("a", 11, "%", 10)
	r.most("b", 10, "%", 10)
	r.least("c", 7999, "/s", 8000)
	r.least("d", 8000, "/s", 8000)
	r.tell("e", 1e9, "")
	r.judge(comparison{Server: "s", Model: "m", Protocol: "http", Callers: cpuCallers, Rounds: []pair{{Ours: run{CPU: 36}, Theirs: run{CPU: 100}}}})
	missed := strings.Join(r.missed(), "\n")
	for _, want := range []string{"a 11", "c 7999", "s, m, http, 16 callers: client CPU a request by perf_analyzer's 0.36"} {
		if !strings.Contains(missed, want) {
			t.Errorf("got %q, want %q in it", missed, want)
		}
	}
	if n := len(r.missed()); n != 3 {
		t.Errorf("got %d floors missed, want 3", n)
	}
	if page := r.page(); !strings.Contains(page, "| b ") || strings.Count(page, "missed") != 3 {
		t.Errorf("got a page\n%s", page)
	}
}

// constant returns a run whose requests all took that long.
func constant(d time.Duration) run {
	h := &load.Histogram{}
	for range 100 {
		h.Record(d)
	}
	us := float64(d.Microseconds())
	return run{Throughput: 1e6 / us, P50: us, P95: us, P99: us, CPU: 1, latency: h}
}

func TestToolsAreComparedByTheirRounds(t *testing.T) {
	const ms = time.Millisecond
	steady := pair{constant(12 * ms), constant(10 * ms)}
	hiccup := pair{constant(12 * ms), constant(60 * ms)}
	for _, tt := range []struct {
		name     string
		rounds   []pair
		missed   int
		doubtful string
	}{
		{"20 % apart in all rounds", []pair{steady, steady, steady, steady}, 4, "0 of 4 figures agree with perf_analyzer's within 10 %; 4 do not; 0 do not where"},
		{"perf_analyzer does not agree with itself", []pair{steady, hiccup, steady, hiccup}, 0, "; 0 do not; 4 do not where its own rounds are further apart"},
		{"alike", []pair{{constant(10 * ms), constant(10 * ms)}}, 0, "4 of 4 figures agree"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &results{}
			r.judge(comparison{Server: "s", Model: slowName, Protocol: "http", Callers: 1, Rounds: tt.rounds})
			if got := len(r.missed()); got != tt.missed || !strings.Contains(r.page(), tt.doubtful) {
				t.Errorf("got %d missed, want %d; page:\n%s\nwant %q in it", got, tt.missed, r.page(), tt.doubtful)
			}
		})
	}
}

// One bad round in eight does not move the median of ratios. It is in the tail of
// all rounds together, and its interval tells how much hangs on that round.
func TestOneBadRoundShowsInTheTailAndItsInterval(t *testing.T) {
	const ms = time.Millisecond
	var c comparison
	for i := range 8 {
		p := pair{constant(10 * ms), constant(10 * ms)}
		if i == 3 {
			p.Ours = constant(30 * ms)
		}
		c.Rounds = append(c.Rounds, p)
	}
	if v, low, high := c.ratio(p50); v != 1 || low != 1 || high < 1 {
		t.Errorf("got p50 %v (%v to %v), want 1", v, low, high)
	}
	if v, low, high := c.tail(0.99); v < 2.9 || low != 1 || high < 2.9 {
		t.Errorf("got p99 %v (%v to %v), want 3 of all rounds together, and 1 at the low end of the interval", v, low, high)
	}
}
