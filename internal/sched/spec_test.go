package sched

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/tensor"
)

// A step is something that happens to a batcher under test.
type step func(*testBatcher)

func sends(id string, rows int, change ...func(*infer.Request)) step {
	return func(b *testBatcher) { b.send(id, rows, change...) }
}

// queued returns how many requests are in the queue, and in no batch yet.
func (b *testBatcher) queued() int {
	b.Batcher.mu.Lock()
	defer b.Batcher.mu.Unlock()
	b.advance(b.now()) // some may still be in the inbox
	return b.queue.len()
}

func waits(d time.Duration) step { return func(*testBatcher) { time.Sleep(d) } }

// gives up after d: a request whose client cancels it then.
func impatient(id string, rows int, d time.Duration) step {
	return func(b *testBatcher) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		b.t.Cleanup(cancel)
		b.sendUntil(ctx, id, rows)
	}
}

// TestBatcherSpecification has one case for each sentence of the compatibility
// notes on Triton's dynamic batcher, named by it. Executions take ten
// milliseconds unless the case says otherwise.
func TestBatcherSpecification(t *testing.T) {
	const (
		run     = 10 * ms
		gone    = "2ms: the request's deadline passed while it was queued"
		expired = "Request timeout expired"
	)
	sizes := func(maxRows int, delay time.Duration, preferred ...int) BatcherConfig {
		return BatcherConfig{Policy: &Triton{MaxRows: maxRows, Preferred: preferred, Delay: delay}}
	}
	with := func(cfg BatcherConfig, levels ...QueuePolicy) BatcherConfig {
		cfg.Levels = levels
		return cfg
	}
	variable := func(cfg BatcherConfig) BatcherConfig {
		cfg.Signature = variableSignature(maxRows(cfg))
		return cfg
	}
	ordered := func(cfg BatcherConfig) BatcherConfig {
		cfg.PreserveOrder = true
		return cfg
	}
	two := []time.Duration{run, run}

	tests := []struct {
		section, sentence string
		cfg               BatcherConfig
		takes             []time.Duration
		steps             []step
		runs              []string
		answers           map[string]string
	}{
		{
			"4.1", "dynamic_batching with max_batch_size 0: each request runs alone and at once, but queue policy and priorities apply",
			with(sizes(1, 0, 1), QueuePolicy{}, QueuePolicy{}), nil,
			[]step{sends("a", 1), sends("low", 1, priority(2)), sends("high", 1, priority(1))},
			[]string{"0s: a", "10ms: high", "20ms: low"},
			nil,
		},
		{
			"4.3", "with idle instances there is never a wait for a slot",
			sizes(8, 0, 8), two,
			[]step{sends("a", 1), sends("b", 1)},
			[]string{"0s: a", "0s: b"},
			nil,
		},
		{
			"4.3", "under load requests leave the queue early, up to two batches per instance ahead",
			sizes(1, 0, 1), nil,
			[]step{sends("a", 1), sends("b", 1), sends("c", 1), sends("d", 1), func(b *testBatcher) {
				if got := b.queued(); got != 1 { // a runs, b and c are batches that wait
					b.t.Errorf("got %d in the queue, want 1", got)
				}
			}},
			[]string{"0s: a", "10ms: b", "20ms: c", "30ms: d"},
			nil,
		},
		{
			"4.3", "while two batches wait nothing is added to the open one: the queue may make a larger preferred size of it",
			sizes(8, 0, 4, 8), nil,
			[]step{
				sends("busy", 8), sends("a", 2), sends("b", 2), sends("c", 1), sends("d", 3),
				sends("e", 1), sends("f", 1), sends("g", 1), sends("h", 1), sends("i", 1),
			},
			[]string{"0s: busy", "10ms: a b", "20ms: c d e f g h", "30ms: i"},
			nil,
		},
		{
			"4.3", "otherwise a slot is free only while some instance is idle, so requests stay in the policy queue",
			with(sizes(1, 0, 1), QueuePolicy{MaxSize: 9}), nil,
			[]step{sends("a", 1), sends("b", 1), sends("c", 1), func(b *testBatcher) {
				if got := b.queued(); got != 2 {
					b.t.Errorf("got %d in the queue, want 2", got)
				}
			}},
			[]string{"0s: a", "10ms: b", "20ms: c"},
			nil,
		},
		{
			"4.3", "so a preferred size that has an instance is not added to: what is left in the queue goes when the next one is idle",
			with(sizes(8, 8*ms, 1, 4), QueuePolicy{MaxSize: 9}, QueuePolicy{}), nil,
			[]step{sends("busy", 1), waits(5 * ms), sends("low", 4, priority(2)), sends("high", 1, priority(1))},
			[]string{"0s: busy", "10ms: high", "20ms: low"},
			nil,
		},
		{
			"4.3", "while no slot is free expired requests with action REJECT are thrown out and answered",
			with(sizes(8, 0, 8), QueuePolicy{Timeout: 4 * ms}), nil,
			[]step{sends("a", 1), sends("b", 1)},
			[]string{"0s: a"},
			map[string]string{"b": "4ms: " + expired},
		},
		{
			"4.3", "several idle instances do not make it split",
			sizes(8, ms, 8),
			[]time.Duration{run, run, run, run},
			[]step{sends("a", 4), sends("b", 4)},
			[]string{"0s: a b"},
			nil,
		},
		{
			"4.4.1", "preferred marks are ignored once late: everything that fits up to B goes, even if a preferred size would be smaller",
			with(sizes(8, 5*ms, 2, 6), QueuePolicy{MaxSize: 9}), nil,
			[]step{sends("busy", 8), sends("a", 3), sends("b", 4), sends("c", 1)},
			[]string{"0s: busy", "10ms: a b c"},
			nil,
		},
		{
			"4.4.1", "D == 0 means never wait: whatever is queued goes at once, best preferred size first, the rest as its own batch right after",
			with(sizes(8, 0, 2, 4), QueuePolicy{MaxSize: 9}), two,
			[]step{sends("x", 8), sends("y", 8), sends("a", 1), sends("b", 1), sends("c", 1), sends("d", 1), sends("e", 1)},
			[]string{"0s: x", "0s: y", "10ms: a b c d", "10ms: e"},
			nil,
		},
		{
			"4.4.1", "with D > 0 a batch fires early on an exact preferred size",
			sizes(8, time.Hour, 3), nil,
			[]step{sends("a", 1), waits(ms), sends("b", 2)},
			[]string{"1ms: a b"},
			nil,
		},
		{
			"4.4.1", "with D > 0 a batch fires early on the total reaching or passing PMAX",
			sizes(8, 50*ms, 3), nil,
			[]step{sends("a", 2), waits(ms), sends("b", 2)},
			[]string{"1ms: a", "51ms: b"},
			nil,
		},
		{
			"4.4.1", "with D > 0 a batch fires early on the next request not fitting B",
			sizes(4, 50*ms, 4), nil,
			[]step{sends("a", 2), waits(ms), sends("b", 3)},
			[]string{"1ms: a", "51ms: b"},
			nil,
		},
		{
			"4.4.1", "with D > 0 a batch fires early on a shape mismatch",
			variable(sizes(8, 50*ms, 8)), nil,
			[]step{sends("a", 1), waits(ms), sends("b", 1, shape(7))},
			[]string{"1ms: a", "51ms: b"},
			nil,
		},
		{
			"4.4.1", "a request larger than PMAX but <= B that starts a batch goes alone at once",
			sizes(8, time.Hour, 4), nil,
			[]step{sends("a", 5)},
			[]string{"0s: a"},
			nil,
		},
		{
			"4.4.1", "PMAX is a soft limit for an open P",
			sizes(8, 3*ms, 6), nil, // a is in P when its delay is up, and the instance is busy
			[]step{sends("busy", 6), sends("a", 3), waits(5 * ms), sends("b", 4)},
			[]string{"0s: busy", "10ms: a b"},
			nil,
		},
		{
			"4.4.1", "with PREF={max_batch_size} and D > 0 waiting goes on till full",
			sizes(4, time.Hour, 4), nil,
			[]step{sends("a", 1), waits(ms), sends("b", 2), waits(ms), sends("c", 1)},
			[]string{"2ms: a b c"},
			nil,
		},
		{
			"4.4.1", "with PREF={max_batch_size} and D > 0 waiting goes on till D",
			sizes(4, 5*ms, 4), nil,
			[]step{sends("a", 1), waits(ms), sends("b", 2)},
			[]string{"5ms: a b"},
			nil,
		},
		{
			"4.4.1", "D is measured from the oldest candidate, so a remainder left after a preferred batch is taken keeps its own age",
			with(sizes(8, 18*ms, 2, 6), QueuePolicy{MaxSize: 9}), nil,
			[]step{sends("busy", 6), sends("a", 1), waits(2 * ms), sends("b", 1), waits(2 * ms), sends("c", 1)},
			[]string{"0s: busy", "10ms: a b", "22ms: c"},
			nil, // c came at 4ms
		},
		{
			"4.4.1", "P in the run queue keeps growing up to PMAX even with D = 0 if it was left open",
			sizes(8, 0, 4), nil,
			[]step{sends("busy", 4), sends("a", 1), waits(ms), sends("b", 1), waits(ms), sends("c", 2), sends("d", 1)},
			[]string{"0s: busy", "10ms: a b c", "20ms: d"},
			nil,
		},
		{
			"4.4.1", "with a preferred size and D == 0 it is closed",
			sizes(8, 0, 2, 8), nil,
			[]step{sends("busy", 8), sends("a", 1), sends("b", 1), sends("c", 1)},
			[]string{"0s: busy", "10ms: a b", "20ms: c"},
			nil,
		},
		{
			"4.4.2", "while the next waiting batch is not sealed, is older than D, fits within B and has equal inputs, it is merged into this one",
			sizes(8, 2*ms, 3), nil,
			[]step{sends("busy", 3), sends("a", 3), sends("b", 3), sends("c", 3)},
			[]string{"0s: busy", "10ms: a b", "20ms: c"},
			nil,
		},
		{
			"4.4.2", "a sealed batch is not merged",
			variable(sizes(8, 2*ms, 8)), nil,
			[]step{sends("busy", 8), sends("a", 1), sends("b", 1, shape(5)), sends("c", 1)},
			[]string{"0s: busy", "10ms: a", "20ms: b", "30ms: c"},
			nil,
		},
		{
			"4.5", "inputs with all dims fixed in the config are not compared",
			sizes(8, 0, 8), nil,
			[]step{sends("busy", 8), sends("a", 1), sends("b", 1, shape(9))},
			[]string{"0s: busy", "10ms: a b"},
			nil,
		},
		{
			"4.5", "inputs with any -1 dim must equal those of the first request in the batch",
			variable(sizes(8, 0, 8)), nil,
			[]step{sends("busy", 8), sends("a", 1, shape(2)), sends("b", 1, shape(2)), sends("c", 1, shape(3))},
			[]string{"0s: busy", "10ms: a b", "20ms: c"},
			nil,
		},
		{
			"4.5", "requested outputs, parameters, ids, priorities and correlation ids are not compared",
			sizes(8, 0, 8), nil,
			[]step{sends("busy", 8), sends("a", 1, func(r *infer.Request) { r.Outputs = []infer.Wanted{{Name: "x"}} }), sends("b", 1, func(r *infer.Request) {
				r.Params = []infer.Param{{Name: "p"}}
				r.Priority, r.Sequence.ID = 7, 9
			})},
			[]string{"0s: busy", "10ms: a b"},
			nil,
		},
		{
			"4.6", "max_queue_size is counted in requests, not in rows, and not what is executing",
			with(sizes(8, 0, 8), QueuePolicy{MaxSize: 2}), nil,
			[]step{sends("a", 8), sends("b", 4), sends("c", 4)},
			[]string{"0s: a", "10ms: b c"},
			map[string]string{"c": "20ms: ok"},
		},
		{
			"4.6", "max_queue_size counts live and delayed of that level only",
			with(sizes(1, 0, 1), QueuePolicy{MaxSize: 1, Timeout: ms, Delay: true}, QueuePolicy{MaxSize: 1}), nil,
			[]step{sends("a", 1), sends("delayed", 1), waits(2 * ms), sends("other level", 1, priority(2)), sends("refused", 1)},
			[]string{"0s: a", "10ms: delayed", "20ms: other level"},
			map[string]string{"refused": "2ms: [request id: refused] Exceeds maximum queue size: 1 requests wait for model 'm'; raise max_queue_size in its queue policy or add instances"},
		},
		{
			"4.6", "the request's timeout is used only if non-zero and smaller than the default",
			with(sizes(8, 0, 8), QueuePolicy{Timeout: 5 * ms, Override: true}), nil,
			[]step{sends("busy", 8), sends("zero", 1), sends("larger", 1, timeout(9*ms)), sends("smaller", 1, timeout(3*ms))},
			[]string{"0s: busy"},
			map[string]string{"zero": "5ms: " + expired, "larger": "5ms: " + expired, "smaller": "3ms: " + expired},
		},
		{
			"4.6", "with default 0 an override has no effect",
			with(sizes(8, 0, 8), QueuePolicy{Override: true}), nil,
			[]step{sends("busy", 8), sends("a", 1, timeout(ms))},
			[]string{"0s: busy", "10ms: a"},
			nil,
		},
		{
			"4.6", "the clock starts at entry to the queue",
			with(sizes(8, 0, 8), QueuePolicy{Timeout: 5 * ms}), nil,
			[]step{sends("busy", 8), waits(7 * ms), sends("a", 1)},
			[]string{"0s: busy", "10ms: a"},
			nil,
		},
		{
			"4.6", "DELAY: moved to the end of the level's delayed list, no further timeout",
			with(sizes(1, 0, 1), QueuePolicy{Timeout: 2 * ms, Delay: true}), nil,
			[]step{sends("busy", 1), sends("a", 1), waits(ms), sends("b", 1)},
			[]string{"0s: busy", "10ms: a", "20ms: b"},
			map[string]string{"b": "30ms: ok"},
		},
		{
			"4.6", "delayed ones are served after all live requests of the same level but before lower levels",
			with(sizes(1, 0, 1), QueuePolicy{Timeout: 2 * ms, Delay: true}, QueuePolicy{}), nil,
			[]step{sends("busy", 1), sends("delayed", 1), sends("low", 1, priority(2)), waits(9 * ms), sends("live", 1)},
			[]string{"0s: busy", "10ms: live", "20ms: delayed", "30ms: low"},
			nil,
		},
		{
			"4.6", "a request that got to an instance can no longer expire",
			with(sizes(8, 0, 8), QueuePolicy{Timeout: 5 * ms}), nil,
			[]step{sends("a", 1)},
			[]string{"0s: a"},
			map[string]string{"a": "10ms: ok"},
		},
		{
			"4.7", "request priority 0, or greater than L, becomes default_priority_level",
			func() BatcherConfig {
				cfg := with(sizes(1, 0, 1), QueuePolicy{}, QueuePolicy{}, QueuePolicy{})
				cfg.DefaultLevel = 1
				return cfg
			}(), nil,
			[]step{sends("busy", 1), sends("third", 1, priority(3)), sends("zero", 1), sends("large", 1, priority(99)), sends("first", 1, priority(1))},
			[]string{"0s: busy", "10ms: first", "20ms: zero", "30ms: large", "40ms: third"},
			nil,
		},
		{
			"4.7", "with priority_levels 0 a priority in the request is ignored",
			sizes(1, 0, 1), nil,
			[]step{sends("busy", 1), sends("a", 1, priority(5)), sends("b", 1, priority(1))},
			[]string{"0s: busy", "10ms: a", "20ms: b"},
			nil,
		},
		{
			"4.7", "a lower level is only taken to fill up a batch after all live and delayed requests of higher levels",
			with(sizes(3, 0, 3), QueuePolicy{}, QueuePolicy{}), nil,
			[]step{sends("busy", 3), sends("low", 1, priority(2)), sends("low too", 1, priority(2)), sends("high", 1), sends("high too", 1)},
			[]string{"0s: busy", "10ms: high high too low", "20ms: low too"},
			nil,
		},
		{
			"4.7", "when a request enters a higher level, candidates are thrown away and the scan restarts",
			with(sizes(2, 5*ms, 2), QueuePolicy{}, QueuePolicy{}), nil,
			[]step{sends("low", 1, priority(2)), waits(ms), sends("high", 2)},
			[]string{"1ms: high", "11ms: low"},
			nil,
		},
		{
			"4.8", "a cancelled request is removed and answered when it is queued",
			with(sizes(8, 0, 8), QueuePolicy{MaxSize: 9}), nil,
			[]step{sends("busy", 8), impatient("a", 1, 2*ms), sends("b", 1)},
			[]string{"0s: busy", "10ms: b"},
			map[string]string{"a": gone},
		},
		{
			"4.8", "and also when it is in a batch that waits for an instance",
			sizes(8, 0, 8), nil,
			[]step{sends("busy", 8), sends("b", 1), impatient("a", 1, 2*ms)},
			[]string{"0s: busy", "10ms: b"},
			map[string]string{"a": gone},
		},
		{
			"4.8", "a request already executing runs on",
			sizes(8, 0, 8), nil,
			[]step{impatient("a", 1, 2*ms)},
			[]string{"0s: a"},
			map[string]string{"a": "10ms: ok"},
		},
		{
			"4.9", "responses leave in the order in which requests entered batches, over all instances",
			ordered(sizes(1, 0, 1)),
			[]time.Duration{run, 30 * ms}, // the slow one is taken first
			[]step{sends("a", 1), sends("b", 1)},
			[]string{"0s: a", "0s: b"},
			map[string]string{"a": "30ms: ok", "b": "30ms: ok"},
		},
		{
			"4.9", "rejected and cancelled requests hold no slot",
			ordered(sizes(1, 0, 1)), nil,
			[]step{sends("a", 1), impatient("gone", 1, 2*ms), sends("b", 1)},
			[]string{"0s: a", "10ms: b"},
			map[string]string{"gone": gone, "b": "20ms: ok"},
		},
		{
			"4.11", "queued ones are still served, new ones are refused",
			sizes(8, time.Hour, 8), nil,
			[]step{sends("a", 1), func(b *testBatcher) { b.Drain() }, sends("late", 1)},
			[]string{"0s: a"},
			map[string]string{"a": "10ms: ok", "late": "0s: [request id: late] Server is stopping, scheduler for model has stopped accepting new inference requests"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.section+" "+tt.sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.takes == nil {
					tt.takes = []time.Duration{run}
				}
				b := startTest(t, tt.cfg, tt.takes...)
				for _, s := range tt.steps {
					s(b)
				}
				b.finish(tt.runs...)
				b.answered(tt.answers)
			})
		})
	}
}

func TestBatcherComparesTheSetOfOptionalInputs(t *testing.T) {
	sig := fixedSignature(8)
	sig.Inputs = append(sig.Inputs, model.Tensor{Name: "J", Optional: true, Dims: tensor.Shape{1}})
	m := newMatcher(sig)
	one := &infer.Request{Inputs: []infer.Input{{Shape: tensor.Shape{1, 1}}}}
	both := &infer.Request{Inputs: []infer.Input{{Shape: tensor.Shape{1, 1}}, {Shape: tensor.Shape{1, 1}, Index: 1}}}
	if !m.differs(one, both) || m.differs(both, both) || m.differs(one, one) {
		t.Error("got the wrong verdict, want exactly equal sets of inputs to share a batch")
	}
}
