package inflight

import "testing"

func TestSomeLargeBuffersAreDirect(t *testing.T) {
	const size = 1 << shelfTier
	dropIdle() // of other tests
	p := NewPool(nil)
	before := p.Get(size)
	var sizes []int
	UseDirect(func(n int) []byte {
		sizes = append(sizes, n)
		if n > size {
			return nil // no more pinned memory
		}
		return make([]byte, n)
	})
	UseDirect(func(int) []byte { panic("a second source") })
	t.Cleanup(func() {
		direct.mu.Lock()
		defer direct.mu.Unlock()
		direct.spans.Store(nil)
		direct.source = nil
		clear(direct.idle[:])
		clear(direct.made[:])
	})
	if IsDirect(*before) {
		t.Error("got a buffer from before, want it to be an ordinary one")
	}
	var taken []*[]byte
	for i := range directEach + 1 {
		b := p.Get(size - 10)
		if got, want := IsDirect((*b)[100:200]), i < directEach; got != want {
			t.Errorf("buffer %d: got direct %v, want %v", i, got, want)
		}
		taken = append(taken, b)
	}
	if large := p.Get(2 * size); IsDirect(*large) || len(*large) != 2*size {
		t.Error("got a direct buffer from a source without memory, want an ordinary one")
	}
	if small := p.Get(size / 2); IsDirect(*small) {
		t.Error("got a small direct buffer")
	}
	for _, b := range taken {
		p.Put(b)
	}
	dropUnused()
	dropUnused() // direct ones stay
	for range directEach {
		if b := p.Reuse(size, 0); b == nil || !IsDirect(*b) || len(*b) != size {
			t.Error("got another buffer, want the direct ones back")
		}
	}
	if len(sizes) != directEach+1 {
		t.Errorf("got requests for %d, want one for each buffer", sizes)
	}
	overlap := make([]byte, 2*size)
	if IsDirect(overlap) {
		t.Error("got direct for other memory")
	}
}
