package perf

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/result"
)

// A streamingServer answers each request ten times, once a second, and notes when
// requests came.
type streamingServer struct {
	mu    sync.Mutex
	start time.Time
	came  []time.Duration
}

func (s *streamingServer) Conns(n int) ([]load.Conn, error) {
	conns := make([]load.Conn, n)
	for i := range conns {
		conns[i] = &streamingConn{s}
	}
	return conns, nil
}

type streamingConn struct{ server *streamingServer }

func (c *streamingConn) Connect(context.Context) error { return nil }
func (c *streamingConn) PollIdle()                     {}
func (c *streamingConn) Close() error                  { return nil }

func (c *streamingConn) Do(_ context.Context, _ *load.Message, x *load.Exchange) error {
	*x = load.Exchange{Arrived: x.Arrived, Start: load.Now()}
	c.server.mu.Lock()
	c.server.came = append(c.server.came, time.Since(c.server.start).Round(time.Second))
	c.server.mu.Unlock()
	for range 10 {
		time.Sleep(time.Second) // the bubble's time
		x.Arrivals = append(x.Arrivals, load.Now())
		x.Arrived()
	}
	x.Done = load.Now()
	return nil
}

func TestPeriodicLoadGrowsWithTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &streamingServer{start: time.Now()}
		session := &Session{
			settings: Settings{
				Mode: result.Periodic, Range: single(10), Periodic: drive.PeriodicLoad{Start: 4, End: 10, Step: 3, Every: 3}, Export: true,
				Plan: result.Plan{Mode: result.RequestCount, RequestCount: 10, BatchSize: 1, MaxTrials: 1, Stability: 1, MaxErrors: 0.01},
			},
			link: server, messages: make([]*load.Message, 1), newAlarm: drive.NewRuntimeAlarm, target: result.Target{Model: "m"}, data: anyData(),
		}
		r, err := session.Run(t.Context(), &logbook{})
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, at := range server.came {
			got = append(got, int(at.Seconds()))
		}
		want := []int{0, 0, 0, 0, 3, 3, 3, 6, 6, 6}
		for i := range want {
			if len(got) != len(want) || got[i] != want[i] {
				t.Fatalf("requests came at %v s, want %v", got, want)
			}
		}
		w := r.Levels[0].Merged
		if w.Requests != 10 || w.Responses != 100 || !r.Levels[0].Stable || len(session.exported[0].Exchanges) != 10 {
			t.Errorf("got %d requests, %d answers, %d of them to export, want 10 and 100 and all", w.Requests, w.Responses, len(session.exported[0].Exchanges))
		}
	})
}

func TestPeriodicLoadIsChecked(t *testing.T) {
	for want, p := range map[string]drive.PeriodicLoad{
		"--request-period is 0":               {Start: 1, End: 2, Step: 1, Every: 0},
		"must start at 1":                     {Start: 0, End: 2, Step: 1, Every: 1},
		"must start at 1 or more, end no low": {Start: 3, End: 2, Step: 1, Every: 1},
		"must lead from the start to the end": {Start: 10, End: 100, Step: 40, Every: 1},
	} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", p, err, want)
		}
	}
	if err := (drive.PeriodicLoad{Start: 10, End: 100, Step: 30, Every: 10}).Check(); err != nil {
		t.Errorf("got %v, want none", err)
	}
}
