package sched

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
)

func TestInboxKeepsTheOrderOfArrival(t *testing.T) {
	var d inbox
	d.newest.Store(closedInbox)
	if d.put(new(call)) {
		t.Fatal("a closed inbox took a call, want it refused")
	}
	d.open()
	for i := range 3 {
		if !d.put(&call{rows: i}) {
			t.Fatal("an open inbox refused a call, want it taken")
		}
	}
	if d.close() {
		t.Fatal("the inbox closed with calls in it, want it to stay open")
	}
	var f fifo
	f.pushList(d.take())
	var got []int
	for _, e := range f.waiting() {
		got = append(got, e.rows)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if !d.close() || d.put(new(call)) {
		t.Error("the inbox stayed open without calls, want it closed")
	}
}

// TestBatcherPlainPolicyFillsAsDecideWould sends the same requests to a batcher
// that takes the short way and to one that asks its policy.
func TestBatcherPlainPolicyFillsAsDecideWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		sizes := make([]int, 2+rng.IntN(40))
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(8)
		}
		var runs [2][]string
		var reasons [2][]infer.Reason
		for i, plain := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				b := startTest(t, plainPolicy, 10*ms)
				b.plain, b.mixed = plain, !plain
				for id, rows := range sizes {
					b.send(strconv.Itoa(id), rows)
				}
				b.wg.Wait()
				b.Close()
				runs[i] = b.log.all()
				reasons[i] = b.record.(*tally).reasons
			})
		}
		if diff := cmp.Diff(runs[1], runs[0]); diff != "" {
			t.Fatalf("requests of %v rows (-policy +short way):\n%s", sizes, diff)
		}
		if diff := cmp.Diff(reasons[1], reasons[0]); diff != "" {
			t.Fatalf("reasons for requests of %v rows (-policy +short way):\n%s", sizes, diff)
		}
	}
}

func TestBatcherACallerThatLeavesTakesItsQueuedRequestOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		caller := infer.NewCaller(context.Background())
		b.sendUntil(caller, "gone", 1)
		b.send("b", 1)
		caller.Leave()
		synctest.Wait()
		b.answered(map[string]string{"gone": "0s: the request was cancelled while it was queued"})
		b.sendUntil(caller, "too late", 1)
		b.finish("0s: a", "10ms: b")
		b.answered(map[string]string{"too late": "0s: the request was cancelled while it was queued"})
	})
}

func TestBatcherACallerThatLeavesTakesAllItsRequestsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		caller := infer.NewCaller(context.Background())
		for range 20 { // more than fit into the batches that are ready
			b.sendUntil(caller, "gone", 1)
		}
		b.send("b", 1)
		caller.Leave()
		b.finish("0s: a", "10ms: b")
		b.answered(map[string]string{"gone": "0s: the request was cancelled while it was queued"})
	})
}

func TestBatcherACallerThatLeavesDoesNotStopWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startTest(t, plainPolicy, 10*ms)
		b.send("a", 1)
		caller := infer.NewCaller(context.Background())
		b.sendUntil(caller, "b", 1)
		waits(15 * ms)(b)
		caller.Leave()
		b.finish("0s: a", "10ms: b")
		b.answered(map[string]string{"b": "20ms: ok"})
	})
}
