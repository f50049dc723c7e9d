package perf

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/arrivals"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
	"shoal/internal/tensor"
)

// bursts returns a trace with irregular gaps, some of them zero.
func bursts() *arrivals.Trace {
	t := &arrivals.Trace{Kinds: []arrivals.Kind{{}}}
	for i := range 40 {
		at := time.Duration(i*i) * 3 * time.Millisecond
		t.Arrivals = append(t.Arrivals, arrivals.Arrival{At: time.Second + at}, arrivals.Arrival{At: time.Second + at})
	}
	return t
}

func TestReplayKeepsTheGapsOfItsTrace(t *testing.T) {
	for _, speed := range []float64{1, 2, 0.5} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var came []time.Duration
			server := &fakeServer{latency: func(int) time.Duration {
				came = append(came, time.Since(start))
				return 10 * time.Millisecond
			}}
			var s Settings
			trace := bursts()
			if err := s.SetReplay("trace", trace, speed); err != nil {
				t.Fatal(err)
			}
			r, err := measured(t, s, server, nil)
			if err != nil || len(came) != 80 || r.Levels[0].Merged.Requests != 80 || !r.Levels[0].Stable {
				t.Fatalf("speed %v: got %d requests, %v, want 80", speed, len(came), err)
			}
			for i, a := range trace.Arrivals {
				if want := time.Duration(float64(a.At-time.Second) / speed); came[i]-came[0] != want {
					t.Fatalf("speed %v: request %d came after %v, want %v", speed, i, came[i]-came[0], want)
				}
			}
		})
	}
}

func TestReplayCountsLatencyFromWhenARequestWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Settings
		if err := s.SetReplay("trace", bursts(), 1); err != nil {
			t.Fatal(err)
		}
		s.Plan.MaxOutstanding = 1 // the second of each pair waits for the first
		r, err := measured(t, s, &fakeServer{latency: always(2 * time.Millisecond)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := r.Levels[0].Merged
		if p25, p90 := w.Latency.Quantile(0.25), w.Latency.Quantile(0.9); p25 != 2*time.Millisecond || math.Abs(float64(p90-4*time.Millisecond)) > 4000 {
			t.Errorf("got p25 %v and p90 %v, want 2ms and the wait on top, 4ms", p25, p90)
		}
	})
}

func TestReplayIsOfTheModelsArrivals(t *testing.T) {
	trace := &arrivals.Trace{Kinds: []arrivals.Kind{{Model: "a"}, {Model: "b"}}, Arrivals: []arrivals.Arrival{{At: 0, Kind: 1}, {At: time.Second, Kind: 0}, {At: 3 * time.Second, Kind: 0}}}
	s := Settings{Model: "a"}
	if err := s.SetReplay("t", trace, 1); err != nil || s.Plan.RequestCount != 2 || !slices.Equal(s.Intervals, []time.Duration{2 * time.Second, 0}) || s.Range.Start != 1 {
		t.Errorf("got %d requests with gaps %v at %v a second, %v, want 2 that are 2s apart", s.Plan.RequestCount, s.Intervals, s.Range.Start, err)
	}
	s.Model = "c"
	if err := s.SetReplay("t", trace, 1); err == nil || !strings.Contains(err.Error(), "but for a, b") {
		t.Errorf("got %v, want which models there are", err)
	}
}

func TestReplayRefusesRequestsThatTheModelDoesNotTake(t *testing.T) {
	ports := []input.Port{{Name: "x", Type: tensor.FP32, Shape: tensor.Shape{-1, 3}}, {Name: "o", Type: tensor.Bytes, Shape: tensor.Shape{1}, Optional: true}}
	in := func(name string, shape ...int64) arrivals.Input { return arrivals.Input{Name: name, Shape: shape} }
	for want, inputs := range map[string][]arrivals.Input{
		"":                           {in("x", 2, 7, 3)},
		`input "x" of shape [7,4]`:   {in("x", 2, 7, 4)},
		"takes 1 to 4 rows":          {in("x", 5, 7, 3)},
		`an input "y"`:               {in("y", 1)},
		`no input "x"`:               {in("o", 1, 1)},
		`2 rows of "x" and 3 of "o"`: {in("x", 2, 7, 3), in("o", 3, 1)},
		"MiB together":               {in("x", 4, 1<<27, 3)},
	} {
		var s Settings
		if err := s.SetReplay("t", &arrivals.Trace{Kinds: []arrivals.Kind{{Inputs: inputs}}, Arrivals: make([]arrivals.Arrival, 1)}, 1); err != nil {
			t.Fatal(err)
		}
		err := (&Session{settings: s, target: result.Target{MaxBatch: 4}}).encodeReplay(ports)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: got %v, want %q", inputs, err, want)
		}
	}
}
