package perf

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/result"
)

// A sequenceServer notes the requests of each sequence and finds fault with those
// that a server of sequences would refuse.
type sequenceServer struct {
	latency time.Duration
	fail    func(n int) error // by the request's number

	mu     sync.Mutex
	n      int
	open   map[uint64]int // requests so far
	flying map[uint64]int
	most   int // requests of one sequence under way
	lively int // sequences under way
	ended  []int
	faults []string
}

func (s *sequenceServer) Conns(n int) ([]load.Conn, error) {
	conns := make([]load.Conn, n)
	for i := range conns {
		conns[i] = &sequenceConn{s}
	}
	return conns, nil
}

type sequenceConn struct{ server *sequenceServer }

func (c *sequenceConn) Connect(context.Context) error { return nil }

func (c *sequenceConn) PollIdle() {}

func (c *sequenceConn) Close() error { return nil }

func (c *sequenceConn) Do(_ context.Context, _ *load.Message, x *load.Exchange) error {
	at := x.Sequence
	*x = load.Exchange{Sequence: at, Start: load.Now()}
	err := c.server.take(at)
	time.Sleep(c.server.latency) // the bubble's time
	c.server.give(at, err)
	x.Done = load.Now()
	return err
}

func (s *sequenceServer) take(at client.Sequence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.fail != nil {
		if err := s.fail(s.n); err != nil {
			delete(s.open, at.ID) // as one that lost its memory
			s.flying[at.ID]++
			return err
		}
	}
	_, open := s.open[at.ID]
	switch {
	case at.ID == 0:
		s.faults = append(s.faults, "a request without a sequence")
	case at.Start && open:
		s.faults = append(s.faults, "a start of a sequence that is under way")
	case !at.Start && !open:
		s.faults = append(s.faults, "a request of a sequence that has not begun")
	case at.End && s.flying[at.ID] > 0:
		s.faults = append(s.faults, "an end before all else was answered")
	}
	s.open[at.ID]++
	s.flying[at.ID]++
	s.most = max(s.most, s.flying[at.ID])
	s.lively = max(s.lively, len(s.open))
	return nil
}

func (s *sequenceServer) give(at client.Sequence, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying[at.ID]--
	if at.End && err == nil {
		s.ended = append(s.ended, s.open[at.ID])
		delete(s.open, at.ID)
	}
}

// runSequences makes load on a server of sequences.
func runSequences(t *testing.T, s Settings, server *sequenceServer) *result.Result {
	t.Helper()
	server.open, server.flying = make(map[uint64]int), make(map[uint64]int)
	s.Plan = result.Plan{Mode: result.TimeWindows, Window: time.Second, MaxTrials: 3, Stability: 9, BatchSize: 1, MaxErrors: 0.5, MaxOutstanding: 64}
	session := &Session{
		settings: s, link: server, messages: make([]*load.Message, 5), newAlarm: drive.NewRuntimeAlarm, target: result.Target{Model: "m"},
		data: anyData(), sequences: drive.NewSequencer(s.Sequences, []drive.Stream{{First: 0, Steps: 3}, {First: 3, Steps: 2}}, 1),
	}
	r, err := session.Run(t.Context(), &logbook{})
	if err != nil {
		t.Fatal(err)
	}
	if len(server.faults) > 0 {
		t.Errorf("got %d faults, the first: %s", len(server.faults), server.faults[0])
	}
	if len(server.open) != 0 {
		t.Errorf("got %d sequences left open, want all ended", len(server.open))
	}
	return r
}

func TestClosedLoopHasASequenceForEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &sequenceServer{latency: 5 * time.Millisecond}
		r := runSequences(t, Settings{Mode: result.Concurrency, Range: single(4), Sequences: drive.Sequences{Length: 10, Variation: 0.2, First: 7, End: 11}}, server)
		w := r.Levels[0].Merged
		if server.lively != 4 || server.most != 1 {
			t.Errorf("got %d sequences and %d requests of one under way, want 4 and 1", server.lively, server.most)
		}
		short, sum := 0, 0
		for _, n := range server.ended {
			sum += n
			if n < 8 {
				short++ // one that was ended with the level
			}
			if n > 12 {
				t.Fatalf("a sequence of %d requests, want 8 to 12", n)
			}
		}
		if mean := float64(sum) / float64(len(server.ended)); short > 4 || mean < 9.5 || mean > 10.5 {
			t.Errorf("got %d short sequences and a mean of %.2f, want 4 at most and about 10", short, mean)
		}
		if w.Sequences < int64(len(server.ended))-8 || w.Sequences > int64(len(server.ended)) {
			t.Errorf("got %d sequences reported, the server saw %d end", w.Sequences, len(server.ended))
		}
	})
}

func TestOpenLoopDealsRequestsToSequences(t *testing.T) {
	for _, c := range []struct {
		name   string
		serial bool
		most   int
	}{{"serial", true, 1}, {"not serial", false, 8}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &sequenceServer{latency: 30 * time.Millisecond}
				s := Settings{Mode: result.RequestRate, Range: single(150), Sequences: drive.Sequences{Length: 9, First: 1, Count: 2, Serial: c.serial}}
				runSequences(t, s, server)
				if server.lively > 2 || server.most > c.most || !c.serial && server.most < 2 {
					t.Errorf("got %d sequences and %d requests of one under way, want 2 and up to %d", server.lively, server.most, c.most)
				}
			})
		})
	}
}

func TestSequenceThatFailedIsBegunAnew(t *testing.T) {
	for mode, r := range map[string]Range{result.Concurrency: single(2), result.RequestRate: single(100)} {
		synctest.Test(t, func(t *testing.T) {
			server := &sequenceServer{latency: time.Millisecond, fail: func(n int) error {
				if n%10 == 0 {
					return errors.New("lost")
				}
				return nil
			}}
			runSequences(t, Settings{Mode: mode, Range: r, Sequences: drive.Sequences{Length: 20, First: 1, Count: 3}}, server)
		})
	}
}
