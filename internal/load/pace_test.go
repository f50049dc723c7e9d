package load

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// scripted callers answer after takes, with an error when fails says so.
type scripted struct {
	takes time.Duration
	fails error
}

func (s *scripted) First(context.Context) error { return nil }
func (s *scripted) Close() error                { return nil }

func (s *scripted) Do(context.Context) error {
	time.Sleep(s.takes)
	return s.fails
}

// generator returns n callers like s.
func generator(s scripted, n int) *Generator {
	g := &Generator{}
	for range n {
		g.callers = append(g.callers, &s)
	}
	return g
}

func TestRunPacedSendsWhenRequestsAreDueWhateverTheServerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(scripted{takes: 300 * time.Millisecond}, 100)
		r, err := g.RunPaced(t.Context(), Pace{Rate: 200, Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		// The last of 200 is due after 995 ms.
		if r.Due != 200 || r.Good.Count() != 200 || r.Elapsed != 1295*time.Millisecond {
			t.Errorf("got %d due, %d good answers in %v, want 200, 200 in 1.295s", r.Due, r.Good.Count(), r.Elapsed)
		}
		if r.Late.Max() != 0 || r.Good.Min() != 300*time.Millisecond || r.Good.Max() != 300*time.Millisecond {
			t.Errorf("got %v late and %v to %v, want 0 and 300ms each", r.Late.Max(), r.Good.Min(), r.Good.Max())
		}
	})
}

func TestRunPacedCountsTheWaitForAFreeCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(scripted{takes: 100 * time.Millisecond}, 1)
		r, err := g.RunPaced(t.Context(), Pace{Rate: 20, Duration: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		// The second is due at 50 ms and sent at 100.
		if got := []time.Duration{r.Late.Max(), r.Good.Min(), r.Good.Max()}; got[0] != 50*time.Millisecond || got[1] != 100*time.Millisecond || got[2] != 150*time.Millisecond {
			t.Errorf("got lateness, least and most %v, want 50ms, 100ms and 150ms", got)
		}
	})
}

func TestRunPacedKeepsOnWhenEverythingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(scripted{takes: time.Millisecond, fails: &StatusError{Code: 503}}, 2)
		r, err := g.RunPaced(t.Context(), Pace{Rate: 1000, Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		no := r.Failed["http 503"]
		if no == nil || no.Count() != 1000 || no.Max() != time.Millisecond || r.Goodput() != 0 || r.FirstError == nil {
			t.Errorf("got %v, goodput %v, %v, want 1000 refusals of 1ms and nothing good", r.Failed, r.Goodput(), r.FirstError)
		}
	})
}

func TestRunPacedRefusesAPaceOfNothing(t *testing.T) {
	for _, p := range []Pace{{}, {Rate: 10}, {Duration: time.Second}, {Rate: math.NaN(), Duration: time.Second}, {Rate: math.Inf(1), Duration: time.Second}} {
		if _, err := generator(scripted{}, 1).RunPaced(t.Context(), p); err == nil {
			t.Errorf("%+v: got no error, want one", p)
		}
	}
}

func TestRunPacedEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
		r, err := generator(scripted{takes: time.Millisecond}, 4).RunPaced(ctx, Pace{Rate: 100, Duration: time.Hour})
		if !errors.Is(err, why) || r.Good.Count() < 49 || r.Good.Count() > 54 {
			t.Errorf("got %d answers and %v, want about 50 and %v", r.Good.Count(), err, why)
		}
	})
}
