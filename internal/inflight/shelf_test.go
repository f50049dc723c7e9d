package inflight

import (
	"runtime"
	"testing"
	"time"
)

func TestShelfDropsWhatIsNotNeeded(t *testing.T) {
	var s shelf
	var all []*[]byte
	for range 4 {
		b := make([]byte, 1)
		all = append(all, &b)
		s.put(&b)
	}
	s.age() // they have all just come
	if got := s.get(); got != all[3] {
		t.Error("got another buffer than the last used")
	}
	if got := s.get(); got != all[2] {
		t.Error("got another buffer than the one used before it")
	}
	s.put(all[2])
	s.put(all[3])
	s.age() // two were needed
	if len(s.idle) != 2 || s.idle[0] != all[2] || s.idle[1] != all[3] {
		t.Errorf("got %d idle buffers, want the two that were needed", len(s.idle))
	}
	s.age()
	if b := s.get(); b != nil {
		t.Errorf("got a buffer that was not needed for a whole interval")
	}
}

// TestShelvesAgeWithCollections: an idle large buffer is gone after some
// collections.
func TestShelvesAgeWithCollections(t *testing.T) {
	p := NewPool(nil)
	freed := make(chan struct{})
	b := p.Get(1 << shelfTier)
	runtime.AddCleanup(b, func(int) { close(freed) }, 0)
	p.Put(b)
	b = nil
	deadline := time.After(20 * time.Second)
	for {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-deadline:
			t.Fatal("an idle buffer was not freed")
		default:
		}
	}
}

// TestIdleMemoryIsPartOfTheBudget: what is in use and what is kept for later have
// the budget together.
func TestIdleMemoryIsPartOfTheBudget(t *testing.T) {
	dropIdle()
	p := NewPool(New(8<<20, 0))
	small := []*[]byte{p.Get(1 << 20), p.Get(1 << 20), p.Get(1 << 20)}
	large := p.Get(4 << 20)
	for _, b := range small {
		p.Put(b)
	}
	if got := idleBytes.Load(); got != 3<<20 {
		t.Errorf("%d bytes are idle, want all three buffers", got)
	}
	more := p.Get(2 << 20) // 6 MiB in use and 3 idle are more than 8
	if got := idleBytes.Load(); got != 0 {
		t.Errorf("%d bytes are idle beside a full budget, want none", got)
	}
	other := p.Get(1 << 20)
	p.Put(other) // beside 6 MiB
	p.Put(large) // beside 2 MiB in use and 1 idle
	p.Put(more)
	if got := idleBytes.Load(); got != 7<<20 {
		t.Errorf("%d bytes are idle, want all three buffers", got)
	}
	huge := p.Get(1<<maxTier + 1) // too large to be kept, and more than the budget
	if got := idleBytes.Load(); got != 0 {
		t.Errorf("%d bytes are idle beside a buffer that is not kept, want none", got)
	}
	p.Put(huge)
}
