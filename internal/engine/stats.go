package engine

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/infer"
	"shoal/internal/sched"
	"shoal/internal/status"
)

// The reasons why a request failed, as the metrics name them.
const (
	failRejected = iota
	failCanceled
	failBackend
	failOther
	failCount
)

var failNames = [failCount]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// stats are the counters of one version. Requests only add to atomics.
type stats struct {
	last       atomic.Int64 // milliseconds since 1970
	inferences atomic.Uint64
	executions atomic.Uint64
	success    counter
	fail       counter
	queue      counter
	input      counter
	infer      counter
	output     counter
	failures   [failCount]atomic.Uint64
	refused    atomic.Uint64 // by the scheduler, at once
	pending    atomic.Int64

	small [maxSmallBatch + 1]atomic.Pointer[batchCounters]
	mu    sync.Mutex // protects large
	large map[int]*batchCounters
}

// maxSmallBatch is the largest batch whose counters are found without a lock.
const maxSmallBatch = 256

type counter struct{ count, ns atomic.Uint64 }

func (c *counter) add(n uint64, d time.Duration) {
	c.count.Add(n)
	c.ns.Add(n * uint64(max(d, 0)))
}

func (c *counter) load() Duration { return Duration{c.count.Load(), c.ns.Load()} }

type batchCounters struct{ input, infer, output counter }

func (s *stats) accepted() { s.pending.Add(1) }

// Started implements sched.Recorder.
func (s *stats) Started(b *infer.Batch) { s.pending.Add(-int64(len(b.Requests))) }

// Executed implements sched.Recorder.
func (s *stats) Executed(b *infer.Batch, err error) {
	t := &b.Times
	if err != nil {
		return
	}
	input, run, output := t.InputsReady.Sub(t.Start), t.OutputsOut.Sub(t.InputsReady), t.End.Sub(t.OutputsOut)
	good, rows := uint64(0), 0
	for _, r := range b.Requests {
		if r.Err != nil {
			continue
		}
		good++
		rows += r.Rows
		s.queue.add(1, t.Start.Sub(r.Queued))
	}
	if good == 0 {
		return
	}
	s.input.add(good, input)
	s.infer.add(good, run)
	s.output.add(good, output)
	s.inferences.Add(uint64(rows))
	s.executions.Add(1)
	bc := s.batch(b.Rows)
	bc.input.add(1, input)
	bc.infer.add(1, run)
	bc.output.add(1, output)
}

// batch returns the counters of executions of that size.
func (s *stats) batch(rows int) *batchCounters {
	if rows <= maxSmallBatch {
		if bc := s.small[rows].Load(); bc != nil {
			return bc
		}
		s.small[rows].CompareAndSwap(nil, new(batchCounters))
		return s.small[rows].Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	bc := s.large[rows]
	if bc == nil {
		bc = new(batchCounters)
		if s.large == nil {
			s.large = make(map[int]*batchCounters)
		}
		s.large[rows] = bc
	}
	return bc
}

// answered counts a request that was accepted at begin and has its answer.
func (s *stats) answered(r *infer.Request, begin time.Time, err error) {
	if r.Started.IsZero() {
		s.pending.Add(-1)
	}
	if r.Queued.IsZero() { // as in Triton, no failure
		s.refused.Add(1)
		return
	}
	now := time.Now()
	s.last.Store(now.UnixMilli())
	if err == nil {
		s.success.add(1, now.Sub(begin))
		return
	}
	s.fail.add(1, now.Sub(begin))
	s.failures[failReason(r, err)].Add(1)
}

func failReason(r *infer.Request, err error) int {
	switch code := status.CodeOf(err); {
	case errors.Is(err, sched.ErrTimeout):
		return failRejected
	case code == status.Cancelled || code == status.DeadlineExceeded:
		return failCanceled
	case !r.Started.IsZero():
		return failBackend
	}
	return failOther
}

// snapshot returns the counters as they are now. They are read one by one, so
// they may be apart by the requests that end meanwhile.
func (v *Version) snapshot() Statistics {
	s := &v.stats
	out := Statistics{
		Name: v.sig.Name, Version: v.number, Config: v.config,
		LastInference:  uint64(s.last.Load()),
		InferenceCount: s.inferences.Load(), ExecutionCount: s.executions.Load(),
		Success: s.success.load(), Fail: s.fail.load(), Queue: s.queue.load(),
		ComputeInput: s.input.load(), ComputeInfer: s.infer.load(), ComputeOutput: s.output.load(),
		Failures: make(map[string]uint64, failCount),
		Pending:  s.pending.Load(),
	}
	for i := range s.failures {
		out.Failures[failNames[i]] = s.failures[i].Load()
	}
	for size := range s.small {
		if bc := s.small[size].Load(); bc != nil {
			out.Batches = append(out.Batches, bc.load(size))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, size := range slices.Sorted(maps.Keys(s.large)) {
		out.Batches = append(out.Batches, s.large[size].load(size))
	}
	return out
}

func (bc *batchCounters) load(size int) BatchStatistics {
	return BatchStatistics{Size: size, ComputeInput: bc.input.load(), ComputeInfer: bc.infer.load(), ComputeOutput: bc.output.load()}
}
