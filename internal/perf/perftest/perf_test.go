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
)

// An observer that looks at nothing.
type nobody struct{}

func (nobody) Begin(perf.Load)          {}
func (nobody) Progress(perf.Progress)   {}
func (nobody) Window(int, *perf.Window) {}
func (nobody) End(*perf.Level)          {}

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
		Service: perf.Triton, Protocol: perf.HTTP, Address: client.Address{Host: s.HTTP}, Model: model,
		Mode: perf.Concurrency, Range: perf.Range{Start: 1, End: 1, Step: 1, Single: true},
		Plan: perf.Plan{BatchSize: 1, Mode: perf.TimeWindows, Window: 250 * time.Millisecond, MaxTrials: 3, Stability: 10, MaxOutstanding: 512, MaxErrors: 0.01},
	}
}

func measure(t *testing.T, s perf.Settings) *perf.Result {
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
	for _, protocol := range []string{perf.HTTP, perf.GRPC} {
		var trace arrivals.Trace
		for i := range int64(3) {
			trace.Kinds = append(trace.Kinds, arrivals.Kind{Model: "varied", Version: "1", Inputs: []arrivals.Input{{Name: "INPUT0", Shape: []int64{i + 1, 10 * (i + 1)}, Bytes: 40 * (i + 1) * (i + 1)}}})
		}
		for i := range 60 {
			trace.Arrivals = append(trace.Arrivals, arrivals.Arrival{At: time.Duration(i*i) * 200 * time.Microsecond, Kind: (i * 7 / 3) % 3})
		}
		s := settings(server, "varied")
		if s.Protocol = protocol; protocol == perf.GRPC {
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
