package procs

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fake returns a counter for a machine of two cores, and what it has set.
func fake() (*Counter, func() []int) {
	var sets []int
	c := &Counter{cores: 2, set: func(extra int) int {
		sets = append(sets, extra)
		return 2
	}}
	return c, func() []int {
		c.mu.Lock() // a review holds it
		defer c.mu.Unlock()
		return slices.Clone(sets)
	}
}

func TestLongCallsGetProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sets := fake()
		for range 3 {
			c.Begin()
		}
		if got, want := sets(), []int{1, 2}; !slices.Equal(got, want) {
			t.Errorf("three calls at a time on two cores set %v, want %v", got, want)
		}
		for range 2 {
			c.End()
		}
		time.Sleep(review + 1)
		synctest.Wait()
		if got, want := sets(), []int{1, 2}; !slices.Equal(got, want) {
			t.Errorf("after a review of a busy time the counter set %v, want %v", got, want)
		}
		time.Sleep(review)
		synctest.Wait()
		if got, want := sets(), []int{1, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("with one call left the counter set %v, want %v", got, want)
		}
		c.End()
		time.Sleep(2 * review)
		synctest.Wait()
		if got, want := sets(), []int{1, 2, 1, 0}; !slices.Equal(got, want) {
			t.Errorf("without calls the counter set %v, want %v", got, want)
		}
		c.Begin()
		if got, want := sets(), []int{1, 2, 1, 0, 1}; !slices.Equal(got, want) {
			t.Errorf("after a pause the counter set %v, want %v", got, want)
		}
		c.End()
		time.Sleep(3 * review)
	})
}

func TestTheProcessGetsItsProcessors(t *testing.T) {
	if os.Getenv("GOMAXPROCS") != "" {
		t.Skip("GOMAXPROCS is set")
	}
	before := runtime.GOMAXPROCS(0)
	c := newCounter()
	c.Begin()
	if got := runtime.GOMAXPROCS(0); got != before+1 {
		t.Errorf("one long call: %d processors, want %d", got, before+1)
	}
	if got := c.Cores(); got != before {
		t.Errorf("got %d cores, want %d", got, before)
	}
	c.End()
	c.review()
	c.review()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("no long call: %d processors, want %d", got, before)
	}
}

func TestTheUsersChoiceStays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	before := runtime.GOMAXPROCS(0)
	c := newCounter()
	c.Begin()
	defer c.End()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors, want %d", got, before)
	}
}
