package sched

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/race"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// slowPolicy is that of the worked examples.
var slowPolicy = BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{2, 6}, Delay: 10 * second}}

var plainPolicy = BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}}}

// TestBatcherWorkedExamples runs the examples that Triton's batcher is tested
// with. Requests are sent at the given times; executions take none.
func TestBatcherWorkedExamples(t *testing.T) {
	type arrival struct {
		at   time.Duration
		id   string
		rows int
		dim  int64
	}
	at0 := func(rows ...int) []arrival {
		var list []arrival
		for i, n := range rows {
			list = append(list, arrival{0, string(rune('a' + i)), n, 1})
		}
		return list
	}
	tests := []struct {
		name  string
		sends []arrival
		want  []string
	}{
		{"a request of 2 runs at once", at0(2), []string{"0s: a"}},
		{"a request of 6 runs at once", at0(6), []string{"0s: a"}},
		{"a request of 1 runs after the delay", at0(1), []string{"10s: a"}},
		{"a request of 3 runs after the delay", at0(3), []string{"10s: a"}},
		{"a request of 7 runs at once", at0(7), []string{"0s: a"}},
		{"1, later 3: one batch when the delay of the first is up", []arrival{{0, "a", 1, 1}, {4 * second, "b", 3, 1}}, []string{"10s: a b"}},
		{"3, then 7: both at once", at0(3, 7), []string{"0s: a", "0s: b"}},
		{"3, then 4: the 3 at once, the 4 after its delay", []arrival{{0, "a", 3, 1}, {1 * second, "b", 4, 1}}, []string{"1s: a", "11s: b"}},
		{"1, 3, then another shape: 4 rows at once, the other waits", []arrival{{0, "a", 1, 1}, {0, "b", 3, 1}, {2 * second, "c", 1, 2}}, []string{"2s: a b", "12s: c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := slowPolicy
				cfg.Signature = variableSignature(8)
				b := startTest(t, cfg, 0)
				for _, a := range tt.sends {
					time.Sleep(time.Until(b.start.Add(a.at)))
					b.send(a.id, a.rows, shape(a.dim))
				}
				b.finish(tt.want...)
			})
		})
	}
}

// TestBatcherPreloaded sends requests while the only instance is busy, so that
// the batcher finds them together.
func TestBatcherPreloaded(t *testing.T) {
	limited := []QueuePolicy{{MaxSize: 100}} // keeps requests in the queue until the instance is idle
	tests := []struct {
		name string
		cfg  BatcherConfig
		rows []int
		want []string
	}{
		{"six 1s make one batch", slowPolicy, []int{1, 1, 1, 1, 1, 1}, []string{"1s: a b c d e f"}},
		{"three 1s: two, then one after its delay", slowPolicy, []int{1, 1, 1}, []string{"1s: a b", "10s: c"}},
		{"no delay: 4 singles", BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4, 6}}}, []int{1, 1, 1, 1}, []string{"1s: a b c d"}},
		{"no delay: 5 singles", BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4, 6}}}, []int{1, 1, 1, 1, 1}, []string{"1s: a b c d", "2s: e"}},
		{"no delay: 7 singles", BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4, 6}}}, []int{1, 1, 1, 1, 1, 1, 1}, []string{"1s: a b c d e f", "2s: g"}},
		{"no delay: 3 singles", BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4, 6}}}, []int{1, 1, 1}, []string{"1s: a b c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.Levels = limited
				b := startTest(t, tt.cfg, second)
				b.send("busy", 8) // full: runs at once
				for i, n := range tt.rows {
					b.send(string(rune('a'+i)), n)
				}
				b.finish(append([]string{"0s: busy"}, tt.want...)...)
			})
		})
	}
}

func TestBatcherALoneRequestWaitsExactlyTheDelay(t *testing.T) {
	for delay, want := range map[time.Duration]string{0: "0s: a", 5 * ms: "5ms: a"} {
		synctest.Test(t, func(t *testing.T) {
			b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}, Delay: delay}}, 0)
			b.send("a", 1)
			b.finish(want)
			b.answered(map[string]string{"a": strings.Replace(want, "a", "ok", 1)})
		})
	}
}

func TestBatcherHoldsTheFirstRequestsForTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4, 6}}, MinQueued: 7}
		b := startTest(t, cfg, 0)
		for i := range 7 {
			time.Sleep(ms)
			b.send(string(rune('a'+i)), 1)
		}
		b.wg.Wait()
		b.send("later", 1)
		b.finish("7ms: a b c d e f", "7ms: g", "7ms: later")
	})
}

func TestBatcherGathersWhileTheInstanceIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		for _, id := range []string{"b", "c", "d"} {
			time.Sleep(ms)
			b.send(id, 2)
		}
		b.finish("0s: a", "10ms: b c d")
		b.answered(map[string]string{"a": "10ms: ok", "b": "20ms: ok", "d": "20ms: ok"})
	})
}

func TestBatcherRunsBatchesInOrderOfArrivalUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 2, Preferred: []int{2}}}, 10*ms)
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			b.send(id, 1)
		}
		b.finish("0s: a", "10ms: b c", "20ms: d e", "30ms: f g", "40ms: h")
	})
}

func TestBatcherDoesNotSplitOverIdleInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}, Delay: ms}}, 0, 0, 0, 0)
		for i := range 8 {
			b.send(string(rune('a'+i)), 1)
		}
		b.finish("0s: a b c d e f g h")
	})
}

func TestBatcherUsesSeveralInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms, 10*ms)
		b.send("a", 1)
		b.send("b", 1)
		b.send("c", 1)
		b.send("d", 1)
		b.finish("0s: a", "0s: b", "10ms: c d")
	})
}

func TestBatcherMergesLateBatchesAtTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{4}, Delay: ms}}, 10*ms)
		b.send("busy", 4)
		b.send("a", 4) // closed at a preferred size, waits for the instance
		b.send("b", 4) // and so does this one
		b.finish("0s: busy", "10ms: a b")
	})
}

func TestBatcherKeepsRequestsOfDifferentInputsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Signature = variableSignature(8)
		b := startTest(t, cfg, 10*ms)
		b.send("busy", 8)
		b.send("a", 1, shape(3))
		b.send("b", 1, shape(3))
		b.send("c", 1, shape(4))
		b.send("d", 1, shape(3))
		b.finish("0s: busy", "10ms: a b", "20ms: c", "30ms: d")
	})
}

func TestBatcherKeepsRequestsWithDifferentOptionalInputsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Signature = fixedSignature(8)
		cfg.Signature.Inputs = append(cfg.Signature.Inputs, model.Tensor{Name: "J", Optional: true, Dims: tensor.Shape{1}})
		both := func(r *infer.Request) {
			r.Inputs = append(r.Inputs, infer.Input{Shape: tensor.Shape{1, 1}, Index: 1})
		}
		b := startTest(t, cfg, 10*ms)
		b.send("busy", 8)
		b.send("a", 1)
		b.send("b", 1, both)
		b.send("c", 1, both)
		b.finish("0s: busy", "10ms: a", "20ms: b c")
	})
}

func TestBatcherIgnoresShapesOfRaggedInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := plainPolicy
		cfg.Signature = variableSignature(8)
		cfg.Signature.Inputs[0].Ragged = true
		b := startTest(t, cfg, 10*ms)
		b.send("busy", 8)
		b.send("a", 1, shape(3))
		b.send("b", 1, shape(4))
		b.finish("0s: busy", "10ms: a b")
	})
}

func TestBatcherPreservesTheOrderOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}}, PreserveOrder: true}
		b := startTest(t, cfg, 10*ms, 30*ms) // the last one is taken first
		b.send("a", 1)
		b.send("b", 1)
		b.send("c", 1)
		b.finish("0s: a", "0s: b", "10ms: c")
		b.answered(map[string]string{"a": "30ms: ok", "b": "30ms: ok", "c": "30ms: ok"})
	})
}

func TestBatcherWithoutOrderAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}}}, 10*ms, 30*ms)
		b.send("a", 1)
		b.send("b", 1)
		b.finish("0s: a", "0s: b")
		b.answered(map[string]string{"a": "30ms: ok", "b": "10ms: ok"})
	})
}

func TestBatcherFailsABatchAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.idle[0].backend.(*recorder).fails = errors.New("no luck")
		b.send("a", 1)
		b.send("b", 1)
		b.send("c", 1)
		b.finish("0s: a", "10ms: b c")
		const want = "internal error; the server's log has the details"
		b.answered(map[string]string{"a": "10ms: " + want, "b": "20ms: " + want, "c": "20ms: " + want})
	})
}

func TestBatcherFailsARequestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		b.send("b", 1, func(r *infer.Request) { r.Err = status.Errorf(status.InvalidArgument, "its own fault") })
		b.send("c", 1)
		b.finish("0s: a", "10ms: b c")
		b.answered(map[string]string{"b": "20ms: its own fault", "c": "20ms: ok"})
	})
}

func TestBatcherCloseRunsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, slowPolicy, 10*ms)
		b.send("a", 1) // would wait ten seconds
		b.Close()
		if got := time.Since(b.start); got != 10*ms {
			t.Errorf("Close took %v, want exactly the 10ms of the execution", got)
		}
		b.send("late", 1)
		b.finish("0s: a")
		b.answered(map[string]string{
			"a":    "10ms: ok",
			"late": "10ms: [request id: late] Server is stopping, scheduler for model has stopped accepting new inference requests",
		})
	})
}

func TestBatcherThatHurriesWaitsForNobodyAndTakesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, slowPolicy, 10*ms)
		b.send("a", 1) // would wait ten seconds
		b.Hurry()
		time.Sleep(20 * ms)
		b.send("late", 1)
		b.finish("0s: a", "20ms: late")
		b.answered(map[string]string{"a": "10ms: ok", "late": "30ms: ok"})
		b.Close()
	})
}

func TestBatcherDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	b, err := StartBatcher(BatcherConfig{Policy: plainPolicy.Policy, Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}, []backend.Instance{&instant{}}, &tally{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, ctx := request(""), t.Context()
	if got := testing.AllocsPerRun(200, func() { _ = b.Do(ctx, r) }); got != 0 {
		t.Errorf("got %v allocations per request, want 0", got)
	}
}
