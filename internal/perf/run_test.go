package perf

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/input"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// A fakeServer answers requests in the bubble's time, each after what latency
// says of its number, and counts as a real one does.
type fakeServer struct {
	client.API // nil: only statistics are asked
	latency    func(n int) time.Duration
	fail       func(n int) error

	mu       sync.Mutex
	n        int
	inFlight int
	most     int
	took     []time.Duration
	gone     error // what questions are answered with
	after    int   // from this request on
	hangs    bool  // questions then have no answer
}

func (s *fakeServer) Conns(n int) ([]load.Conn, error) {
	conns := make([]load.Conn, n)
	for i := range conns {
		conns[i] = &fakeConn{server: s, closed: make(chan struct{})}
	}
	return conns, nil
}

func (s *fakeServer) Statistics(ctx context.Context, _, _ string) ([]*pb.ModelStatistics, error) {
	s.mu.Lock()
	gone := s.gone
	if s.n < s.after {
		gone = nil
	}
	s.mu.Unlock()
	if gone != nil && s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(len(s.took))
	d := func(ns uint64) *pb.StatisticDuration { return &pb.StatisticDuration{Count: n, Ns: n * ns} }
	return []*pb.ModelStatistics{{Version: "1", InferenceCount: 2 * n, ExecutionCount: n, InferenceStats: &pb.InferStatistics{
		Success: d(10_000), Queue: d(3000), ComputeInput: d(1000), ComputeInfer: d(4000), ComputeOutput: d(1000),
	}}}, gone
}

func (c *fakeConn) Tend() {}

func (s *fakeServer) begin() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	var err error
	if s.fail != nil {
		err = s.fail(s.n)
	}
	return s.latency(s.n), err
}

func (s *fakeServer) end(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if err == nil {
		s.took = append(s.took, took)
	}
}

type fakeConn struct {
	server *fakeServer
	closed chan struct{}
	once   sync.Once
}

func (c *fakeConn) Connect(context.Context) error { return nil }

func (c *fakeConn) Do(_ context.Context, _ *load.Message, x *load.Exchange) error {
	*x = load.Exchange{Keep: x.Keep, Start: load.Now()}
	latency, err := c.server.begin()
	select {
	case <-time.After(latency):
	case <-c.closed:
		err = context.Canceled
	}
	x.Done = load.Now()
	x.Sent, x.First = x.Start, x.Done
	c.server.end(x.Done-x.Start, err)
	return err
}

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// A logbook is an observer that remembers.
type logbook struct {
	begun   []Load
	windows int
	ticks   int
	onTick  func(Progress)
}

func (l *logbook) Begin(load Load)     { l.begun = append(l.begun, load) }
func (l *logbook) Window(int, *Window) { l.windows++ }
func (l *logbook) End(*Level)          {}
func (l *logbook) Progress(p Progress) {
	l.ticks++
	if l.onTick != nil {
		l.onTick(p)
	}
}

// measured runs settings against a server in a bubble's time.
func measured(t *testing.T, s Settings, server *fakeServer, o *logbook) (*Result, error) {
	t.Helper()
	if s.Plan.MaxTrials == 0 {
		s.Plan.MaxTrials = 10
	}
	if s.Plan.Mode == "" {
		s.Plan.Mode = TimeWindows
	}
	if s.Plan.Stability == 0 {
		s.Plan.Stability = 0.1
	}
	s.Plan.BatchSize = 2
	if s.Plan.MaxErrors == 0 {
		s.Plan.MaxErrors = 0.01
	}
	if s.Plan.MaxOutstanding == 0 {
		s.Plan.MaxOutstanding = 512
	}
	if s.Plan.Window == 0 {
		s.Plan.Window = time.Second
	}
	session := &Session{
		settings: s, api: server, link: server, messages: []*load.Message{nil, nil}, statistics: true,
		data: &input.Set{}, newAlarm: newRuntimeAlarm, target: Target{Model: "m"},
	}
	if o == nil {
		o = &logbook{}
	}
	return session.Run(t.Context(), o)
}

func always(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

func single(n float64) Range { return Range{n, n, 1, true} }

func TestRunMeasuresALevelInThreeWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{latency: always(10 * time.Millisecond)}
		book := &logbook{}
		start := time.Now()
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(4)}, server, book)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Levels[0]
		w := l.Merged
		if len(r.Levels) != 1 || !l.Stable || len(l.Windows) != 3 || book.windows != 3 || book.ticks < 30 {
			t.Fatalf("got %d levels, %d windows, stable %v, %d ticks, want one stable level of 3 windows", len(r.Levels), len(l.Windows), l.Stable, book.ticks)
		}
		if w.Duration != 3600*time.Millisecond || time.Since(start) > 3700*time.Millisecond {
			t.Errorf("got %v, want three windows of 1.2 s and no more", w.Duration)
		}
		// 4 callers, 10 ms each, 2 rows a request.
		if got := w.Throughput(); math.Abs(got-800) > 8 || server.most != 4 {
			t.Errorf("got %v rows/s with %d under way, want 800 with 4", got, server.most)
		}
		if p50, p99 := w.Latency.Quantile(0.5), w.Latency.Quantile(0.99); p50 != 10*time.Millisecond || p99 != p50 {
			t.Errorf("got p50 %v and p99 %v, want 10ms", p50, p99)
		}
		if s := w.Server; s == nil || math.Abs(float64(s.Success.Count)-float64(w.Requests)) > 4 || s.MeanBatch() != 2 || s.Queue.Mean() != 3000 {
			t.Errorf("got %+v for %d requests, want the server's account of them", s, w.Requests)
		}
		if n := len(l.Timeline); n < 36 || l.Timeline[n-1].At > 3700*time.Millisecond {
			t.Errorf("got a timeline of %d ticks, want one for each tenth of a second", n)
		}
	})
}

func TestRunTakesTheLastThreeWindowsThatAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: func(int) time.Duration {
			if time.Since(start) < 2500*time.Millisecond {
				return 40 * time.Millisecond // a cold start
			}
			return 10 * time.Millisecond
		}}
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(1)}, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Levels[0]
		if !l.Stable || len(l.Windows) < 5 || len(l.Windows) > 6 || l.Merged.Latency.Quantile(0.99) > 11*time.Millisecond {
			t.Errorf("got %d windows, stable %v, p99 %v, want the cold ones left out", len(l.Windows), l.Stable, l.Merged.Latency.Quantile(0.99))
		}
	})
}

// restless returns latencies that change with time, so that windows never agree.
func restless() func(int) time.Duration {
	start := time.Now()
	return func(int) time.Duration {
		return time.Duration(5+10*int(time.Since(start)/(1200*time.Millisecond)%3)) * time.Millisecond
	}
}

func TestRunReportsALevelThatIsNotStableAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		r, err := measured(t, Settings{Mode: Concurrency, Range: Range{1, 2, 1, false}, Plan: Plan{MaxTrials: 4}}, &fakeServer{latency: restless()}, book)
		if err != nil || len(r.Levels) != 2 || len(book.begun) != 2 {
			t.Fatalf("got %d levels, %v, want both", len(r.Levels), err)
		}
		for _, l := range r.Levels {
			if l.Stable || !strings.Contains(l.Reason, "throughput spread") || len(l.Windows) != 4 || l.Merged == nil {
				t.Errorf("got stable %v, %q, %d windows, want a reason and figures", l.Stable, l.Reason, len(l.Windows))
			}
		}
		if got := len(r.Reported()); got != 2 {
			t.Errorf("got %d levels reported, want 2", got)
		}
	})
}

func TestRunWithFewerThanThreeTrialsReportsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(1), Plan: Plan{MaxTrials: 1}}, &fakeServer{latency: always(time.Millisecond)}, nil)
		if err != nil || r.Levels[0].Stable || math.Abs(float64(r.Levels[0].Merged.Requests)-1200) > 2 || r.Levels[0].Reason != "1 of 3 windows" {
			t.Errorf("got %+v, %v, want one window, not called stable", r.Levels[0].Reason, err)
		}
	})
}

func TestAsyncRunPassesWhenOnlyLatencyVaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Throughput is the schedule's, latency wanders.
		settings := Settings{Mode: RequestRate, Distribution: Constant, Range: single(100), Plan: Plan{Async: true, MaxTrials: 4}}
		r, err := measured(t, settings, &fakeServer{latency: restless()}, nil)
		if l := r.Levels[0]; err != nil || !l.Stable || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "latency is not stabilizing") {
			t.Errorf("got stable %v, %q, %v, want a warning only", l.Stable, l.Warnings, err)
		}
		settings.Plan.Async = false
		if r, err = measured(t, settings, &fakeServer{latency: restless()}, nil); err != nil || r.Levels[0].Stable {
			t.Errorf("not async: got stable %v, %v, want not", r.Levels[0].Stable, err)
		}
	})
}

func TestRunEndsItsRangeAtTheLatencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{}
		server.latency = func(int) time.Duration { return time.Duration(server.inFlight) * 2 * time.Millisecond }
		r, err := measured(t, Settings{Mode: Concurrency, Range: Range{1, 8, 1, false}, Plan: Plan{LatencyLimit: 5 * time.Millisecond}}, server, nil)
		if err != nil || len(r.Levels) != 3 || len(r.Reported()) != 2 || !r.Levels[2].OverLimit {
			t.Errorf("got %d levels, %d reported, %v, want 3, the last over the limit", len(r.Levels), len(r.Reported()), err)
		}
	})
}

func TestRunSendsExactlyTheRequestsAskedFor(t *testing.T) {
	for name, s := range map[string]Settings{
		"closed": {Mode: Concurrency, Range: single(3)},
		"open":   {Mode: RequestRate, Distribution: Poisson, Range: single(100)},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{latency: always(7 * time.Millisecond)}
			s.Plan = Plan{Mode: RequestCount, RequestCount: 50, Warmup: 5}
			r, err := measured(t, s, server, nil)
			w := r.Levels[0].Merged
			if err != nil || w.Requests != 50 || server.n != 55 || !r.Levels[0].Stable {
				t.Errorf("%s: got %d of %d requests, %v, want 50 after a warm-up of 5", name, w.Requests, server.n, err)
			}
			if name == "closed" && w.Duration != 17*7*time.Millisecond {
				t.Errorf("got %v from first to last, want 17 rounds of 7ms", w.Duration)
			}
		})
	}
}

func TestCountWindowsHaveTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(1), Plan: Plan{Mode: CountWindows, WindowCount: 30}},
			&fakeServer{latency: always(100 * time.Millisecond)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range r.Levels[0].Windows {
			if w.Requests < 30 || w.Requests > 31 {
				t.Errorf("got a window of %d requests in %v, want 30", w.Requests, w.Duration)
			}
		}
	})
}

// TestOpenLoopShowsAStallThatOthersHide is criterion P6: 500 requests a second,
// ten seconds, one of them without answers.
func TestOpenLoopShowsAStallThatOthersHide(t *testing.T) {
	run := func(t *testing.T, mode string, value float64, p Plan) *Window {
		t.Helper()
		var w *Window
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &fakeServer{latency: func(int) time.Duration {
				at := time.Since(start)
				if at >= 4*time.Second && at < 5*time.Second {
					return 5*time.Second - at + 200*time.Microsecond
				}
				return 200 * time.Microsecond
			}}
			p.Mode, p.RequestCount = RequestCount, 5000
			if mode == Concurrency {
				p.RequestCount = 40_000
			}
			r, err := measured(t, Settings{Mode: mode, Distribution: Constant, Range: single(value), Plan: p}, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			w = r.Levels[0].Merged
		})
		return w
	}
	w := run(t, RequestRate, 500, Plan{LatencyClock: ScheduleClock})
	p95, p99 := w.Latency.Quantile(0.95), w.Latency.Quantile(0.99)
	if p99 < 850*time.Millisecond || p99 > 1050*time.Millisecond || p95 < 400*time.Millisecond || p95 > 700*time.Millisecond {
		t.Errorf("schedule clock: got p95 %v and p99 %v, want about 500ms and 900ms", p95, p99)
	}
	w = run(t, RequestRate, 500, Plan{LatencyClock: SendClock, MaxOutstanding: 4})
	if p99 := w.Latency.Quantile(0.99); p99 >= 50*time.Millisecond {
		t.Errorf("send clock: got p99 %v, want below 50ms", p99)
	}
	if lag := w.SendLag.Max(); lag < 900*time.Millisecond || w.MaxInFlight != 4 {
		t.Errorf("four at once: got a send lag of %v with %d in flight, want about 1s with 4", lag, w.MaxInFlight)
	}
	w = run(t, RequestRate, 500, Plan{LatencyClock: ScheduleClock, MaxOutstanding: 4})
	if p99 := w.Latency.Quantile(0.99); p99 < 850*time.Millisecond {
		t.Errorf("four at once, schedule clock: got p99 %v, want that waiting counts", p99)
	}
	w = run(t, Concurrency, 1, Plan{})
	if p99 := w.Latency.Quantile(0.99); p99 >= time.Millisecond {
		t.Errorf("closed loop: got p99 %v, want that it hides the stall", p99)
	}
}

func TestPercentilesAreTrueForKnownDistributions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, latency := range map[string]func(int) time.Duration{
		"constant": always(3 * time.Millisecond),
		"bimodal": func(n int) time.Duration {
			if n%20 == 0 {
				return 50 * time.Millisecond
			}
			return time.Millisecond
		},
		"heavy tail": func(int) time.Duration {
			return time.Duration(float64(time.Millisecond) * math.Pow(1-rng.Float64(), -1/1.5))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{latency: latency}
			r, err := measured(t, Settings{Mode: Concurrency, Range: single(8), Plan: Plan{Mode: RequestCount, RequestCount: 20_000}}, server, nil)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(server.took)
			for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
				want := server.took[int(math.Ceil(q*float64(len(server.took))))-1]
				got := r.Levels[0].Merged.Latency.Quantile(q)
				if math.Abs(float64(got-want)) > 0.02*float64(want) {
					t.Errorf("%s: quantile %v is %v, want %v within 2 %%", name, q, got, want)
				}
			}
		})
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	for _, rate := range []float64{200, 1000, 2000} {
		synctest.Test(t, func(t *testing.T) {
			r, err := measured(t, Settings{Mode: RequestRate, Distribution: Constant, Range: single(rate)}, &fakeServer{latency: always(3 * time.Millisecond)}, nil)
			w := r.Levels[0].Merged
			if got := w.RequestRate(); err != nil || math.Abs(got-rate) > 0.005*rate || w.SendLag.Max() > 0 || w.Delayed > 0 {
				t.Errorf("got %v a second, lag %v, %v, want %v", got, w.SendLag.Max(), err, rate)
			}
		})
	}
}

func TestOpenLoopSaysThatTheServerDoesNotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := measured(t, Settings{Mode: RequestRate, Distribution: Constant, Range: single(1000), Plan: Plan{MaxOutstanding: 5}},
			&fakeServer{latency: always(10 * time.Millisecond)}, nil)
		l := r.Levels[0]
		if err != nil || math.Abs(l.Merged.RequestRate()-500) > 5 || l.Merged.DelayedShare() < 0.99 {
			t.Errorf("got %v a second, %v delayed, %v, want 500 and all", l.Merged.RequestRate(), l.Merged.DelayedShare(), err)
		}
		if !slices.ContainsFunc(l.Warnings, func(s string) bool { return strings.Contains(s, "--max-outstanding") }) {
			t.Errorf("got warnings %q, want one that names the flag", l.Warnings)
		}
	})
}

func TestRunCountsErrorsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{latency: always(time.Millisecond), fail: func(n int) error {
			if n%100 == 0 {
				return &load.StatusError{Code: 503, Body: []byte(`{"error":"queue is full"}`)}
			}
			return nil
		}}
		r, err := measured(t, Settings{Mode: Concurrency, Range: single(2)}, server, nil)
		w := r.Levels[0].Merged
		if err != nil || w.Failed == 0 || w.Errors["http 503: queue is full"] != w.Failed {
			t.Errorf("got %d failures, %v, %v, want them by cause", w.Failed, w.Errors, err)
		}
		if share := float64(w.Failed) / float64(w.Failed+w.Requests); share < 0.005 || share > 0.015 {
			t.Errorf("got a share of %v, want 1 %%", share)
		}
	})
}

func TestRunEndsAtOnceWhenTheRequestIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: always(time.Millisecond), fail: func(int) error {
			return &load.StatusError{Code: 400, Body: []byte(`{"error":"unexpected shape for input 'A'"}`)}
		}}
		_, err := measured(t, Settings{Mode: Concurrency, Range: single(1)}, server, nil)
		if err == nil || !strings.Contains(err.Error(), "unexpected shape for input 'A'") || time.Since(start) > time.Second {
			t.Errorf("got %v after %v, want the server's words at once", err, time.Since(start))
		}
	})
}

func TestRunEndsWhenTheServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &fakeServer{latency: always(time.Millisecond), fail: func(int) error {
			if time.Since(start) >= 1500*time.Millisecond {
				return errors.New("connection refused")
			}
			return nil
		}}
		r, err := measured(t, Settings{Mode: Concurrency, Range: Range{4, 8, 4, false}}, server, nil)
		if err == nil || !strings.Contains(err.Error(), "stopped answering after 6000 requests") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v, want when and why", err)
		}
		if time.Since(start) > 6*time.Second || len(r.Levels) != 1 || r.Levels[0].Merged.Requests != 6000 || r.Cut == "" {
			t.Errorf("got %d levels after %v, cut %q, want an early end with the counts", len(r.Levels), time.Since(start), r.Cut)
		}
	})
}

// A server that is gone answers no questions either, and what it did before, in the
// first window of a run, is told all the same.
func TestRunThatLosesItsServerHasItsCounts(t *testing.T) {
	for name, hangs := range map[string]bool{"it refuses": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				server := &fakeServer{hangs: hangs}
				server.latency = func(n int) time.Duration {
					if n >= 6000 && hangs {
						return time.Hour
					}
					return time.Millisecond
				}
				server.fail = func(n int) error {
					if n >= 6000 && !hangs {
						return errors.New("connection refused")
					}
					return nil
				}
				server.after = 6000
				server.gone = errors.New("connection refused")
				r, err := measured(t, Settings{Mode: Concurrency, Range: single(4)}, server, nil)
				if err == nil || r.Cut == "" || len(r.Reported()) != 1 {
					t.Fatalf("got %v, cut %q, %d levels, want an error and what was measured", err, r.Cut, len(r.Reported()))
				}
				if l := r.Levels[0]; l.Merged.Requests < 5990 || l.Merged.Requests > 6000 || l.Stable || l.Reason != cutShort {
					t.Errorf("got %d requests, stable %v, %q, want about 6000 and cut short", l.Merged.Requests, l.Stable, l.Reason)
				}
				if took := time.Since(start); took > 25*time.Second {
					t.Errorf("it took %v, want an end soon after the window", took)
				}
			})
		})
	}
}

func TestRunSaysThatNothingWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := measured(t, Settings{Mode: Concurrency, Range: single(1)}, &fakeServer{latency: always(time.Hour)}, nil)
		if !errors.Is(err, ErrNoAnswers) || time.Since(start) > 30*time.Second {
			t.Errorf("got %v after %v, want no answers, soon", err, time.Since(start))
		}
	})
}

func TestRunThatIsCutReportsWhatItHas(t *testing.T) {
	for name, s := range map[string]Settings{
		"closed": {Mode: Concurrency, Range: Range{1, 4, 1, false}},
		"open":   {Mode: RequestRate, Distribution: Constant, Range: Range{100, 400, 100, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s.Plan = Plan{Mode: TimeWindows, Window: time.Second, BatchSize: 1, Stability: 0.1, MaxTrials: 10, MaxOutstanding: 8}
			server := &fakeServer{latency: always(10 * time.Millisecond)}
			session := &Session{
				settings: s, api: server, link: server, messages: []*load.Message{nil}, statistics: true,
				data: &input.Set{}, newAlarm: newRuntimeAlarm,
			}
			r, err := session.Run(ctx, &logbook{onTick: func(p Progress) {
				if p.Trial == 2 && p.Elapsed > 500*time.Millisecond {
					cancel()
				}
			}})
			if err != nil || r.Cut != "interrupted" || len(r.Levels) != 1 || len(r.Levels[0].Windows) != 2 || r.Levels[0].Merged.Requests < 150 {
				t.Errorf("%s: got %d levels, cut %q, %v, want the first with a window and a half", name, len(r.Levels), r.Cut, err)
			}
			if l := r.Levels[0]; l.Stable || l.Reason != cutShort {
				t.Errorf("%s: got stable %v, %q, want that it was cut short", name, l.Stable, l.Reason)
			}
			if server.inFlight != 0 {
				t.Errorf("%s: got %d requests still under way, want none", name, server.inFlight)
			}
		})
	}
}

func TestRunEndsWhenStatisticsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := measured(t, Settings{Mode: Concurrency, Range: single(1)}, &fakeServer{latency: always(time.Millisecond), gone: errors.New("no such model")}, nil)
		if err == nil || !strings.Contains(err.Error(), "no such model") {
			t.Errorf("got %v, want the server's words", err)
		}
	})
}
