package sched

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatcherRefusesBeyondTheMaximumQueueSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Levels = []QueuePolicy{{MaxSize: 2}}
		b := startTest(t, cfg, 10*ms)
		for _, id := range []string{"a", "b", "c", "d"} {
			b.send(id, 1)
		}
		b.finish("0s: a", "10ms: b c")
		b.answered(map[string]string{
			"c": "20ms: ok",
			"d": "0s: [request id: d] Exceeds maximum queue size: 2 requests wait for model 'm'; raise max_queue_size in its queue policy or add instances",
		})
	})
}

func TestBatcherRejectsOnTimeWhatTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Levels = []QueuePolicy{{Timeout: 3 * ms}}
		b := startTest(t, cfg, 10*ms)
		b.send("a", 1)
		b.send("b", 1)
		time.Sleep(8 * ms)
		b.send("c", 1)
		b.finish("0s: a", "10ms: c")
		b.answered(map[string]string{"b": "3ms: Request timeout expired", "c": "20ms: ok"})
	})
}

func TestBatcherARequestMayShortenItsTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Levels = []QueuePolicy{{Timeout: 5 * ms, Override: true}}
		b := startTest(t, cfg, 10*ms)
		b.send("a", 1)
		b.send("longer", 1, timeout(8*ms))
		b.send("shorter", 1, timeout(2*ms))
		b.send("none", 1)
		b.finish("0s: a")
		b.answered(map[string]string{
			"longer": "5ms: Request timeout expired", "shorter": "2ms: Request timeout expired", "none": "5ms: Request timeout expired",
		})
	})
}

func TestBatcherIgnoresATimeoutThatThePolicyDoesNotAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []QueuePolicy{{}, {MaxSize: 9}, {Override: true}} {
			cfg := plainPolicy
			cfg.Levels = []QueuePolicy{p}
			b := startTest(t, cfg, 10*ms)
			b.send("a", 1)
			b.send("b", 1, timeout(ms))
			b.finish("0s: a", "10ms: b")
		}
	})
}

func TestBatcherServesDelayedRequestsAfterTheLiveOnesOfTheirLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{
			Policy: &Triton{MaxRows: 1, Preferred: []int{1}},
			Levels: []QueuePolicy{{Timeout: 3 * ms, Delay: true}, {}}, DefaultLevel: 0,
		}, 10*ms)
		b.send("busy", 1)
		b.send("old", 1)
		time.Sleep(8 * ms)
		b.send("low", 1, priority(2))
		b.send("new", 1)
		b.finish("0s: busy", "10ms: new", "20ms: old", "30ms: low")
	})
}

func TestBatcherServesHigherPrioritiesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{
			Policy: &Triton{MaxRows: 2, Preferred: []int{2}},
			Levels: []QueuePolicy{{}, {}, {}}, DefaultLevel: 1,
		}, 10*ms)
		b.send("busy", 2)
		b.send("low", 1, priority(3))
		b.send("default", 1)
		b.send("too large is default", 1, priority(9))
		b.send("high", 1, priority(1))
		b.finish("0s: busy", "10ms: high default", "20ms: too large is default low")
	})
}

func TestBatcherALowerLevelFillsUpABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{
			Policy: &Triton{MaxRows: 4, Preferred: []int{4}}, Levels: []QueuePolicy{{}, {}}, DefaultLevel: 1,
		}, 10*ms)
		b.send("busy", 4)
		b.send("low", 1)
		b.send("high", 1, priority(1))
		b.finish("0s: busy", "10ms: high low")
	})
}

func TestBatcherCancelTakesAQueuedRequestOutAtOnce(t *testing.T) {
	for name, levels := range map[string][]QueuePolicy{"in the queue": {{MaxSize: 9}}, "in a batch that waits": {{}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := plainPolicy
				cfg.Levels = levels
				b := startTest(t, cfg, 10*ms)
				b.send("a", 1)
				ctx, cancel := context.WithTimeout(context.Background(), 2*ms)
				defer cancel()
				b.sendUntil(ctx, "gone", 1)
				b.send("b", 1)
				b.finish("0s: a", "10ms: b")
				b.answered(map[string]string{"gone": "2ms: the request's deadline passed while it was queued"})
			})
		})
	}
}

func TestBatcherABatchThatLosesAllItsRequestsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*ms)
		defer cancel()
		b.sendUntil(ctx, "gone", 8)
		b.sendUntil(ctx, "too", 1)
		time.Sleep(5 * ms)
		b.send("b", 1)
		b.finish("0s: a", "10ms: b")
	})
}

func TestBatcherCancelDoesNotStopWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		ctx, cancel := context.WithTimeout(context.Background(), 2*ms)
		defer cancel()
		b.sendUntil(ctx, "a", 1)
		b.finish("0s: a")
		b.answered(map[string]string{"a": "10ms: ok"})
	})
}
