package perf

import (
	"context"
	"sync"
	"testing"
	"time"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
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

func (c *fakeConn) PollIdle() {}

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
	begun   []result.Load
	windows int
	ticks   int
	onTick  func(result.Progress)
}

func (l *logbook) Begin(load result.Load) { l.begun = append(l.begun, load) }

func (l *logbook) Window(int, *result.Window) { l.windows++ }

func (l *logbook) End(*result.Level) {}

func (l *logbook) Progress(p result.Progress) {
	l.ticks++
	if l.onTick != nil {
		l.onTick(p)
	}
}

// measured runs settings against a server in a bubble's time.
func measured(t *testing.T, s Settings, server *fakeServer, o *logbook) (*result.Result, error) {
	t.Helper()
	if s.Plan.MaxTrials == 0 {
		s.Plan.MaxTrials = 10
	}
	if s.Plan.Mode == "" {
		s.Plan.Mode = result.TimeWindows
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
		data: &input.Set{}, newAlarm: drive.NewRuntimeAlarm, target: result.Target{Model: "m"},
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
