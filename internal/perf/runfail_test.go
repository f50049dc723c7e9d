package perf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
)

func TestRunCountsErrorsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{latency: always(time.Millisecond), fail: func(n int) error {
			if n%100 == 0 {
				return &load.StatusError{Code: 503, Body: []byte(`{"error":"queue is full"}`)}
			}
			return nil
		}}
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(2)}, server, nil)
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
		_, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1)}, server, nil)
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
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: Range{4, 8, 4, false}}, server, nil)
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
				r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(4)}, server, nil)
				if err == nil || r.Cut == "" || len(r.Reported()) != 1 {
					t.Fatalf("got %v, cut %q, %d levels, want an error and what was measured", err, r.Cut, len(r.Reported()))
				}
				if l := r.Levels[0]; l.Merged.Requests < 5990 || l.Merged.Requests > 6000 || l.Stable || l.Reason != result.CutShort {
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
		_, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1)}, &fakeServer{latency: always(time.Hour)}, nil)
		if !errors.Is(err, ErrNoAnswers) || time.Since(start) > 30*time.Second {
			t.Errorf("got %v after %v, want no answers, soon", err, time.Since(start))
		}
	})
}

func TestRunThatIsCutReportsWhatItHas(t *testing.T) {
	for name, s := range map[string]Settings{
		"closed": {Mode: result.Concurrency, Range: Range{1, 4, 1, false}},
		"open":   {Mode: result.RequestRate, Distribution: result.Constant, Range: Range{100, 400, 100, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s.Plan = result.Plan{Mode: result.TimeWindows, Window: time.Second, BatchSize: 1, Stability: 0.1, MaxTrials: 10, MaxOutstanding: 8}
			server := &fakeServer{latency: always(10 * time.Millisecond)}
			session := &Session{
				settings: s, api: server, link: server, messages: []*load.Message{nil}, statistics: true,
				data: &input.Set{}, newAlarm: drive.NewRuntimeAlarm,
			}
			r, err := session.Run(ctx, &logbook{onTick: func(p result.Progress) {
				if p.Trial == 2 && p.Elapsed > 500*time.Millisecond {
					cancel()
				}
			}})
			if err != nil || r.Cut != "interrupted" || len(r.Levels) != 1 || len(r.Levels[0].Windows) != 2 || r.Levels[0].Merged.Requests < 150 {
				t.Errorf("%s: got %d levels, cut %q, %v, want the first with a window and a half", name, len(r.Levels), r.Cut, err)
			}
			if l := r.Levels[0]; l.Stable || l.Reason != result.CutShort {
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
		_, err := measured(t, Settings{Mode: result.Concurrency, Range: single(1)}, &fakeServer{latency: always(time.Millisecond), gone: errors.New("no such model")}, nil)
		if err == nil || !strings.Contains(err.Error(), "no such model") {
			t.Errorf("got %v, want the server's words", err)
		}
	})
}
