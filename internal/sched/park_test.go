package sched

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
)

// holding is a policy that makes each held batch wait for one more row, for as long as
// it says.
type holding struct{ left []time.Duration }

func (w *holding) Needs() Needs { return Needs{} }
func (w *holding) Observe(Run)  {}

func (w *holding) Decide(v *View) Decision {
	switch {
	case v.Held == nil:
		return Decision{Fill: 2}
	case v.Held.Looks > 0:
		return Decision{Start: true}
	}
	wait := w.left[0]
	w.left = w.left[1:]
	return Decision{Start: wait == 0, Wait: wait, More: 1}
}

// The timer is set for the second batch, goes off while the third waits, and must be
// set again for it.
func TestAParkedBatchStartsWhenItsWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &runLog{start: time.Now()}
		in := computer{&recorder{takes: 5 * ms, log: log}}
		cfg := BatcherConfig{Policy: &holding{[]time.Duration{0, 8 * ms, 8 * ms}}, Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}
		b, err := startBatcher(cfg, []backend.Instance{in}, &tally{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for n, after := range []time.Duration{0, ms, 6 * ms, 7 * ms} {
			r := request(strconv.Itoa(n))
			r.Rows = 1
			wg.Go(func() {
				time.Sleep(after)
				if err := b.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.Close()
		if diff := cmp.Diff([]string{"0s: 0", "6ms: 1 2", "19ms: 3"}, log.all()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}
