package perftest_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"shoal/internal/arrivals"
	"shoal/internal/client"
	"shoal/internal/perf"
	"shoal/internal/perf/perftest"
	"shoal/internal/perf/result"
)

// An observer that looks at nothing.
type nobody struct{}

func (nobody) Begin(result.Load)          {}
func (nobody) Progress(result.Progress)   {}
func (nobody) Window(int, *result.Window) {}
func (nobody) End(*result.Level)          {}

func start(t *testing.T) *perftest.Server {
	t.Helper()
	s, err := perftest.Start(t.Context(), perftest.Models())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// settings are those of a short run over HTTP that need not become stable.
func settings(s *perftest.Server, model string) perf.Settings {
	return perf.Settings{
		Service: perf.Triton, Protocol: result.HTTP, Address: client.Address{Host: s.HTTP}, Model: model,
		Mode: result.Concurrency, Range: perf.Range{Start: 1, End: 1, Step: 1, Single: true},
		Plan: result.Plan{BatchSize: 1, Mode: result.TimeWindows, Window: 250 * time.Millisecond, MaxTrials: 3, Stability: 10, MaxOutstanding: 512, MaxErrors: 0.01},
	}
}

func measure(t *testing.T, s perf.Settings) *result.Result {
	t.Helper()
	session, err := perf.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := session.Run(ctx, nobody{})
	if err != nil || r.Cut != "" {
		t.Fatalf("got %v, cut %q", err, r.Cut)
	}
	return r
}

// TestReplaySendsWhatTheTraceHas replays a trace of different shapes and has the
// server record it: what comes out is what went in.
func TestReplaySendsWhatTheTraceHas(t *testing.T) {
	server := start(t)
	for _, protocol := range []string{result.HTTP, result.GRPC} {
		var trace arrivals.Trace
		for i := range int64(3) {
			trace.Kinds = append(trace.Kinds, arrivals.Kind{Model: "varied", Version: "1", Inputs: []arrivals.Input{{Name: "INPUT0", Shape: []int64{i + 1, 10 * (i + 1)}, Bytes: 40 * (i + 1) * (i + 1)}}})
		}
		for i := range 60 {
			trace.Arrivals = append(trace.Arrivals, arrivals.Arrival{At: time.Duration(i*i) * 200 * time.Microsecond, Kind: (i * 7 / 3) % 3})
		}
		s := settings(server, "varied")
		if s.Protocol = protocol; protocol == result.GRPC {
			s.Address.Host = server.GRPC
		}
		if err := s.SetReplay("trace", &trace, 1); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		rec, err := server.Tap.Record(&out, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := measure(t, s)
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := arrivals.Parse(&out)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Arrivals) != 60 {
			t.Fatalf("%s: got %d arrivals, want 60", protocol, len(got.Arrivals))
		}
		if !reflect.DeepEqual(tally(got), tally(&trace)) {
			t.Errorf("%s: got %v, want %v", protocol, tally(got), tally(&trace))
		}
		if rows := r.Levels[0].Merged.Rows; rows != 120 {
			t.Errorf("%s: got %d rows, want 20 each of 1, 2 and 3", protocol, rows)
		}
		// The whole lasts as long as it did; a busy machine may delay single ones.
		length := got.Arrivals[59].At - got.Arrivals[0].At
		if want := trace.Arrivals[59].At; length < want*9/10 || length > want*3 {
			t.Errorf("%s: got a trace of %v, want about %v", protocol, length, want)
		}
	}
}

// tally counts the arrivals of each kind.
func tally(t *arrivals.Trace) map[string]int {
	n := make(map[string]int)
	for _, a := range t.Arrivals {
		n[fmt.Sprint(t.Kinds[a.Kind])]++
	}
	return n
}

// TestFlakyModelIsMeasuredToTheEnd is criterion P13 without the exit codes.
func TestFlakyModelIsMeasuredToTheEnd(t *testing.T) {
	s := settings(start(t), "flaky")
	s.Range.Start, s.Range.End = 4, 4
	s.Plan.Mode, s.Plan.RequestCount = result.RequestCount, 4000
	w := measure(t, s).Levels[0].Merged
	if share := w.FailedShare(); share < 0.005 || share > 0.015 || len(w.Errors) != 2 {
		t.Errorf("got a share of %.2f%% for %v, want 1 %% for two reasons", 100*share, w.Errors)
	}
	if w.Requests+w.Failed != 4000 {
		t.Errorf("got %d answers and %d failures, want 4000 together", w.Requests, w.Failed)
	}
}

// TestClosedLoopOnARealServer is criteria P3 and P5, briefly: they hold however
// busy the machine is.
func TestClosedLoopOnARealServer(t *testing.T) {
	server := start(t)
	for _, n := range []float64{1, 16} {
		s := settings(server, "curve_mid")
		s.Range.Start, s.Range.End = n, n
		w := measure(t, s).Levels[0].Merged
		// On a busy machine callers are late with the next request, and the last answers are in no window.
		waits, idle, edge := w.RequestRate()*w.Latency.Mean().Seconds(), n*w.Overhead(n), n*float64(w.Latency.Max())/float64(w.Duration)
		if off := n - waits - idle; off < -0.1*n-edge || off > 0.1*n+edge {
			t.Errorf("%v callers: got %v a second of %v and %.1f idle, want Little's law", n, w.RequestRate(), w.Latency.Mean(), idle)
		}
		if least := 2500 * time.Microsecond; w.Latency.Min() < least {
			t.Errorf("%v callers: got a latency of %v, want at least the model's %v", n, w.Latency.Min(), least)
		}
		// The server's counters are read beside the client's, while requests go on.
		if client, server := float64(w.Requests), float64(w.Server.Success.Count); client-server > n+0.1*client || server-client > n+0.1*client {
			t.Errorf("%v callers: got %v at the client and %v at the server", n, client, server)
		}
	}
}

// TestStallShowsByScheduleAndHidesBySend is criterion P6, briefly.
func TestStallShowsByScheduleAndHidesBySend(t *testing.T) {
	server := start(t)
	s := settings(server, "stall")
	s.Mode, s.Distribution = result.RequestRate, result.Constant
	s.Range.Start, s.Range.End = 200, 200
	s.Plan.Mode, s.Plan.RequestCount, s.Plan.LatencyClock, s.Plan.MaxOutstanding = result.RequestCount, 300, result.SendClock, 1
	timer := time.AfterFunc(300*time.Millisecond, func() { server.Stall(600 * time.Millisecond) })
	defer timer.Stop()
	w := measure(t, s).Levels[0].Merged
	// With one request under way, one alone is sent into the stall; a hundred wait.
	if send, schedule := w.Latency.Quantile(0.9), w.FromSchedule.Quantile(0.9); schedule < 200*time.Millisecond || send > schedule/2 {
		t.Errorf("got p90 %v by send and %v by schedule, want the stall in the second alone", send, schedule)
	}
}
