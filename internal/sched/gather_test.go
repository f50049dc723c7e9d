package sched

import (
	"testing"
	"testing/synctest"
	"time"
)

// A sleepPauser steps aside for as long as it is told to.
type sleepPauser struct{ plainPauser }

func (sleepPauser) pause(d time.Duration) { time.Sleep(d) }

// The model takes 2 ms. While a runs, b waits; whoever sent a has the answer and
// sends again 15 us after that, when b's batch is about to start.
func TestLeaderGathersThoseAboutToArriveUnlessToldNotTo(t *testing.T) {
	for _, tt := range []struct {
		name string
		off  bool
		want []string
	}{
		{"gathering", false, []string{"0s: a", "2.03125ms: b again"}},
		{"not gathering", true, []string{"0s: a", "2ms: b", "4ms: again"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}, NoGather: tt.off}}, 2*time.Millisecond)
				for _, i := range b.all {
					i.pauser = sleepPauser{}
				}
				b.send("a", 1)
				b.send("b", 1)
				time.Sleep(2*time.Millisecond + 15*time.Microsecond)
				b.send("again", 1)
				b.finish(tt.want...)
			})
		})
	}
}

// The model takes 2 ms, so that a step is 31.25 us. The company of b is late, or
// does not come at all.
func TestLeaderGathersUntilFourStepsInARowBringNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		late time.Duration
		want []string
	}{
		{"one in the fourth step", 110 * time.Microsecond, []string{"0s: a", "2.125ms: b late"}},
		{"one after it", 140 * time.Microsecond, []string{"0s: a", "2.125ms: b", "4.25ms: late"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startTest(t, BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}}}, 2*time.Millisecond)
				for _, i := range b.all {
					i.pauser = sleepPauser{}
				}
				b.send("a", 1)
				b.send("b", 1)
				time.Sleep(2*time.Millisecond + tt.late)
				b.send("late", 1)
				b.finish(tt.want...)
			})
		})
	}
}
