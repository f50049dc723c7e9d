package inflight

import (
	"math/rand/v2"
	"runtime"
	"sync"
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
	p.Put(p.Get(1 << shelfTier))
	for deadline := time.Now().Add(20 * time.Second); idleBytes.Load() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("an idle buffer was not dropped")
		}
		runtime.GC()
	}
}

// TestDroppedBuffersHaveNoPages: what is dropped is the system's at once, and its
// addresses are used again.
func TestDroppedBuffersHaveNoPages(t *testing.T) {
	dropIdle()
	p, before := NewPool(nil), shelfBytes.Load()
	b := p.Get(1<<20 - 1)
	if got := shelfBytes.Load() - before; got != 1<<20 {
		t.Errorf("the shelves grew by %d bytes, want 1 MiB", got)
	}
	address := &(*b)[0]
	*address = 1
	p.Put(b)
	dropIdle()
	if got := shelfBytes.Load() - before; got != 0 {
		t.Errorf("the shelves still have %d bytes", got)
	}
	if !freePages(nil) {
		t.Skip("the garbage collector frees memory here")
	}
	if *address != 0 {
		t.Error("a dropped buffer still has its content")
	}
	again := p.Get(1 << 20)
	if &(*again)[0] != address || len(*again) != 1<<20 {
		t.Errorf("got %d bytes elsewhere, want the addresses of the dropped buffer", len(*again))
	}
	p.Put(again)
}

// TestBuffersBesideAFullBudgetAreFreed: what there is no room for is not kept, nor
// left to the garbage collector.
func TestBuffersBesideAFullBudgetAreFreed(t *testing.T) {
	dropIdle()
	p, before := NewPool(New(1<<20, 0)), shelfBytes.Load()
	first, second := p.Get(1<<20), p.Get(1<<20)
	p.Put(first)
	if got := shelfBytes.Load() - before; got != 1<<20 {
		t.Errorf("the shelves have %d bytes beside a full budget, want those in use", got)
	}
	p.Put(second)
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

// TestBuffersHaveOneOwner: what one writes into its buffer nobody else changes,
// while idle buffers are dropped all the time.
func TestBuffersHaveOneOwner(t *testing.T) {
	p := NewPool(New(32<<20, 0))
	var wg sync.WaitGroup
	for owner := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(owner)))
			for range 200 {
				b := p.Get(1<<(shelfTier-1) + rng.IntN(4<<20))
				ends := [...]*byte{&(*b)[0], &(*b)[len(*b)/2], &(*b)[len(*b)-1]}
				for _, end := range ends {
					*end = byte(owner)
				}
				if rng.IntN(8) == 0 {
					dropIdle()
				}
				runtime.Gosched()
				for _, end := range ends {
					if *end != byte(owner) {
						t.Errorf("owner %d found %d in a buffer of %d bytes", owner, *end, len(*b))
					}
				}
				p.Put(b)
			}
		})
	}
	wg.Wait()
	if got := p.Budget().Used(); got != 0 {
		t.Errorf("%d bytes are in use after all were given back", got)
	}
}
