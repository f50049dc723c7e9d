package page

import (
	"math"
	"math/rand/v2"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/result"
)

// A sample says what result to make up.
type sample struct {
	levels   int
	windows  int // of each level; 0 means 3
	requests int // of each window; 0 means 1000
	ticks    int // of each window; 0 means 6
	open     bool
	failing  bool
	silent   bool // the server has no statistics
}

// result makes up a run of a server with room for four requests at once.
func (s sample) result() *result.Result {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &result.Result{
		Format: 1, Tool: "shoal test", Command: []string{"shoal", "perf", "-m", "a<b", "--shape", "x y"}, Started: started,
		Host:   result.Host{OS: "linux", Arch: "amd64", CPU: "A Processor", CPUs: 2},
		Target: result.Target{URL: "localhost:8000", Protocol: result.HTTP, Model: "a<b", Server: "shoal 1", MaxBatch: 8, ServerPID: 7},
		Plan:   result.Plan{BatchSize: 1, Mode: result.TimeWindows, Window: 500 * time.Millisecond, Stability: 0.1, MaxTrials: 10, Ranged: s.levels > 1},
		Levels: []result.Level{},
	}
	random := rand.New(rand.NewPCG(1, 2))
	at := started
	for i := range s.levels {
		load := result.Load{Mode: result.Concurrency, Value: float64(i + 1)}
		if s.open {
			load = result.Load{Mode: result.RequestRate, Value: 100 * float64(i+1), Distribution: result.Poisson}
		}
		r.Levels = append(r.Levels, s.level(load, float64(i+1), &at, random))
	}
	r.Ended = at
	return r
}

func (s sample) level(l result.Load, n float64, at *time.Time, random *rand.Rand) result.Level {
	out := result.Level{Load: l, Stable: true, Windows: []result.Window{}, Spread: result.Spread{Throughput: 0.02, Latency: 0.04}}
	begin := *at
	mean := 2e6 * max(1, n/4) // saturated from four on
	merged := result.Window{Start: begin, Latency: &load.Histogram{}}
	for range max(3, s.windows) {
		w := s.window(l, n, mean, random)
		w.Start = *at
		s.tick(&out, at.Sub(begin), w)
		*at = at.Add(w.Duration)
		out.Windows = append(out.Windows, w)
		merged.Latency.Merge(w.Latency)
		merged.Duration += w.Duration
		merged.Requests += w.Requests
		merged.Rows += w.Rows
		merged.Failed += w.Failed
		merged.ClientCPU += w.ClientCPU
		merged.Server, merged.FromSend, merged.SendLag = w.Server, w.FromSend, w.SendLag
	}
	out.Merged = &merged
	for _, name := range []string{result.FigureThroughput, "p50", "p99"} {
		v := merged.Throughput()
		if name != result.FigureThroughput {
			v = mean
		}
		out.Figures = append(out.Figures, result.Figure{Name: name, Value: v, Low: 0.96 * v, High: 1.04 * v, Error: 0.02, Freedom: 20})
	}
	if s.failing {
		out.Goals = []result.GoalResult{{Goal: "p99<7ms", Met: n <= 4}, {Goal: "error<1%"}}
	}
	return out
}

func (s sample) window(l result.Load, n, mean float64, random *rand.Rand) result.Window {
	count := s.requests
	if count == 0 {
		count = 1000
	}
	w := result.Window{Requests: int64(count), Rows: int64(count), Latency: &load.Histogram{}, ClientCPU: time.Duration(count) * 9 * time.Microsecond}
	if l.Open() {
		w.FromSend, w.SendLag = &load.Histogram{}, &load.Histogram{}
	}
	for range count {
		d := time.Duration(mean * math.Exp(random.NormFloat64()/2))
		w.Latency.Record(d)
		if l.Open() {
			w.FromSend.Record(d * 3 / 4)
			w.SendLag.Record(d / 4)
		}
	}
	w.Duration = time.Duration(float64(count) * mean / min(n, 4))
	if s.failing {
		w.Failed = 17
		w.Errors = map[string]int64{"http 503: the <queue> is full": 12, "timeout": 5}
	}
	if !s.silent {
		runs := uint64(count) / 2
		part := func(share float64) result.Counted {
			return result.Counted{Count: uint64(count), Ns: uint64(share * mean * float64(count))}
		}
		w.Server = &result.ServerStats{
			Version: "1", Inferences: uint64(count), Executions: runs, Success: part(0.9), Queue: part(0.4), Input: part(0.05), Infer: part(0.3), Output: part(0.05),
			Batches: []result.BatchSize{{Size: 1, Infer: result.Counted{Count: runs / 2, Ns: 1}}, {Size: 3, Infer: result.Counted{Count: runs / 2, Ns: 1}}},
		}
	}
	return w
}

// tick adds the timeline of a window.
func (s sample) tick(l *result.Level, since time.Duration, w result.Window) {
	n := s.ticks
	if n == 0 {
		n = 6
	}
	for i := range n {
		l.Timeline = append(l.Timeline, result.Tick{
			At: since + w.Duration*time.Duration(i+1)/time.Duration(n), Requests: w.Requests / int64(n), Failed: w.Failed / int64(n),
			P50: w.Latency.Quantile(0.5), P99: w.Latency.Quantile(0.99), Max: w.Latency.Max(),
		})
	}
}
