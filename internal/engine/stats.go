package engine

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"shoal/internal/backend"
	"shoal/internal/histogram"
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

// stats are the counters of one version. Requests and batches only add to
// atomics. The numbers of successful requests and of executions are not counted
// separately: the histograms and the table of sizes have them.
type stats struct {
	layouts  *layouts
	ensemble bool // each step counts for itself
	batching bool // requests run together

	pending  atomic.Int64
	refused  atomic.Uint64 // by the scheduler, at once
	success  timed
	first    timed // the first response of a decoupled model; dist is nil for others
	fail     atomic.Uint64
	failNs   atomic.Uint64
	failures [failCount]atomic.Uint64

	busy   busyTime
	formed [infer.ReasonCount]atomic.Uint64
	rows   *histogram.Histogram
	rowSum atomic.Uint64

	last       atomic.Int64  // milliseconds since 1970
	inferences atomic.Uint64 // rows
	computed   atomic.Uint64 // requests, of the three below
	inputNs    atomic.Uint64
	inferNs    atomic.Uint64
	outputNs   atomic.Uint64
	queue      timed
	batches    batchTable
	responses  responseTable

	// The distributions of the three parts of an execution, nil unless asked
	// for.
	input, infer, output *histogram.Histogram
}

// timed counts events by how long they took.
type timed struct {
	dist *histogram.Histogram
	ns   atomic.Uint64
}

func (t *timed) snapshot() (histogram.Snapshot, Duration) {
	ns := t.ns.Load()
	s := t.dist.Snapshot(float64(ns) / 1e9)
	return s, Duration{s.Count(), ns}
}

// init prepares the counters for use.
func (s *stats) init(l *layouts, computeTimes, decoupled bool) {
	s.layouts, s.busy.from = l, time.Now()
	s.success.dist, s.queue.dist, s.rows = histogram.New(l.request), histogram.New(l.queue), histogram.New(l.rows)
	if decoupled {
		s.first.dist = histogram.New(l.request)
	}
	if computeTimes {
		s.input, s.infer, s.output = histogram.New(l.queue), histogram.New(l.queue), histogram.New(l.queue)
	}
}

// nanos is a duration in nanoseconds. A negative one, of a clock that was set
// back, counts as zero.
func nanos(d time.Duration) uint64 { return uint64(max(d, 0)) }

func seconds(d time.Duration) float64 { return float64(max(d, 0)) / 1e9 }

func (s *stats) accepted() { s.pending.Add(1) }

// Started implements sched.Recorder.
func (s *stats) Started(b *infer.Batch) {
	s.pending.Add(-int64(len(b.Requests)))
	s.busy.start(b.Times.Start)
	s.formed[b.Reason].Add(1)
	s.rows.Add(float64(b.Rows), 1)
	s.rowSum.Add(uint64(b.Rows))
}

// Executed implements sched.Recorder.
func (s *stats) Executed(b *infer.Batch, err error) {
	t := &b.Times
	s.busy.end(t.End)
	if err != nil {
		s.traceBatch(b, err)
		return
	}
	traced := false
	var good, rows, waited uint64
	for _, r := range b.Requests {
		if r.Trace != nil {
			traced = true
		}
		if r.Err != nil {
			continue
		}
		wait := t.Start.Sub(r.Queued)
		good++
		rows += uint64(r.Rows)
		waited += nanos(wait)
		s.queue.dist.Add(seconds(wait), 1)
		if r.Spent != nil {
			r.Spent.Add(wait, t)
		}
	}
	if traced {
		s.traceBatch(b, nil)
	}
	if good == 0 && t.OutputsOut.IsZero() { // no request could run
		return
	}
	input, run, output := t.InputsReady.Sub(t.Start), t.OutputsOut.Sub(t.InputsReady), t.End.Sub(t.OutputsOut)
	s.queue.ns.Add(waited)
	s.computed.Add(good)
	s.inputNs.Add(good * nanos(input))
	s.inferNs.Add(good * nanos(run))
	s.outputNs.Add(good * nanos(output))
	if s.input != nil {
		s.input.Add(seconds(input), good)
		s.infer.Add(seconds(run), good)
		s.output.Add(seconds(output), good)
	}
	s.inferences.Add(rows)
	s.last.Store(t.End.UnixMilli())
	s.batches.at(b.Rows).add(input, run, output) // failed requests were in the batch too
}

// concluded counts a request that was accepted at begin, by its outcome.
func (s *stats) concluded(r *infer.Request, begin time.Time, err error) {
	if !r.Started {
		s.pending.Add(-1)
	}
	switch r.Outcome {
	case infer.Refused: // as in Triton, not a failure
		s.refused.Add(1)
	case infer.Failed:
		s.failed(failReason(r, err), time.Since(begin))
	default:
		s.succeeded(time.Since(begin))
	}
}

// failed counts a failed request. As in Triton, that of an ensemble counts
// twice, unless it is decoupled, and without a reason: the step has that.
func (s *stats) failed(reason int, took time.Duration) {
	n := uint64(1)
	if s.ensemble {
		reason = failOther
		if s.first.dist == nil {
			n = 2
		}
	}
	s.fail.Add(n)
	s.failNs.Add(n * nanos(took))
	s.failures[reason].Add(n)
}

// malformed counts a request with an error that Triton leaves to its backends.
func (s *stats) malformed() {
	s.fail.Add(1)
	s.failures[failBackend].Add(1)
}

// succeeded counts a successful request.
func (s *stats) succeeded(took time.Duration) {
	s.success.dist.Add(seconds(took), 1)
	s.success.ns.Add(nanos(took))
}

// responded counts the first response of a decoupled model to a request.
func (s *stats) responded(took time.Duration) {
	s.first.dist.Add(seconds(took), 1)
	s.first.ns.Add(nanos(took))
}

// delivered counts one response of a decoupled model.
func (s *stats) delivered(d infer.Delivery) { s.responses.add(d) }

func failReason(r *infer.Request, err error) int {
	switch code := status.CodeOf(err); {
	case errors.Is(err, sched.ErrTimeout):
		return failRejected
	case code == status.Cancelled || code == status.DeadlineExceeded:
		return failCanceled
	case r.Started:
		return failBackend
	}
	return failOther
}

// snapshot returns the current counters. They are read one by one, so they may
// differ by the requests that end meanwhile.
func (v *Version) snapshot() Statistics {
	s := v.stats
	out := Statistics{
		Name: v.sig.Name, Namespace: v.namespace, Version: v.number, Config: v.config,
		LastInference: uint64(s.last.Load()), InferenceCount: s.inferences.Load(),
		Fail:     Duration{s.fail.Load(), s.failNs.Load()},
		Failures: make(map[string]uint64, failCount),
		Pending:  s.pending.Load(), Refused: s.refused.Load(),
		Instances: v.active(), Loaded: v.loaded, LoadDuration: v.loadDuration,
	}
	out.Busy, out.BusyTime = s.busy.read(time.Now())
	if s.ensemble {
		out.BusyTime = 0 // it has no instances; its times are those of its steps
	}
	computed := s.computed.Load()
	out.ComputeInput = Duration{computed, s.inputNs.Load()}
	out.ComputeInfer = Duration{computed, s.inferNs.Load()}
	out.ComputeOutput = Duration{computed, s.outputNs.Load()}
	for i := range s.failures {
		out.Failures[failNames[i]] = s.failures[i].Load()
	}
	for i := range s.formed {
		out.Formed[i] = s.formed[i].Load()
	}
	out.RequestTime, out.Success = s.success.snapshot()
	out.QueueTime, out.Queue = s.queue.snapshot()
	out.BatchRows = s.rows.Snapshot(float64(s.rowSum.Load()))
	out.FirstResponse, out.FirstResponseTime = s.layouts.firstResponse, out.RequestTime
	if s.first.dist != nil {
		out.FirstResponseTime, _ = s.first.snapshot()
	}
	out.Responses = s.responses.list()
	out.Workers, out.GPUs = v.workers(), v.gpus()
	if s.input != nil {
		out.InputTime = s.input.Snapshot(float64(out.ComputeInput.Ns) / 1e9)
		out.InferTime = s.infer.Snapshot(float64(out.ComputeInfer.Ns) / 1e9)
		out.OutputTime = s.output.Snapshot(float64(out.ComputeOutput.Ns) / 1e9)
	}
	if c := v.cached; c != nil {
		out.Cached = true
		out.CacheHit, out.CacheMiss = Duration{c.hits.Load(), c.hitNs.Load()}, Duration{c.misses.Load(), c.missNs.Load()}
		if c.hitTime != nil {
			out.CacheHitTime = c.hitTime.Snapshot(float64(out.CacheHit.Ns) / 1e9)
			out.CacheMissTime = c.missTime.Snapshot(float64(out.CacheMiss.Ns) / 1e9)
		}
	}
	out.Batches, out.ExecutionCount = s.batches.list()
	return out
}

// gpus returns the GPUs of the instances.
func (v *Version) gpus() (list []backend.GPUUse) {
	for _, m := range v.members {
		on, ok := m.instance.(backend.OnGPU)
		if !ok {
			continue
		}
		use, ok := on.GPU()
		if !ok {
			continue
		}
		if at := slices.IndexFunc(list, func(u backend.GPUUse) bool { return u.ID == use.ID }); at >= 0 {
			list[at].Bytes += use.Bytes
		} else {
			list = append(list, use)
		}
	}
	slices.SortFunc(list, func(a, b backend.GPUUse) int { return a.ID - b.ID })
	return list
}

// workers returns the state of the processes behind the instances.
func (v *Version) workers() (list []backend.Worker) {
	for _, m := range v.members {
		if w, ok := m.instance.(backend.Supervised); ok {
			list = append(list, w.Worker())
		}
	}
	return list
}
