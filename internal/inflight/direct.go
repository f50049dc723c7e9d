package inflight

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Some large buffers lie in memory that a GPU reads by itself (pinned memory),
// once there is one: a request that is received into such a buffer and runs
// alone is not copied on the host. They are few and are never given back: such
// memory is scarce, and slow to get.
const (
	directTier = 22 // 4 MiB; larger ones gain little
	directEach = 4  // buffers of a size
)

// direct are the buffers in pinned memory.
var direct struct {
	// spans are where they are, nil until there is a source. It is replaced as a
	// whole.
	spans atomic.Pointer[[]span]

	mu     sync.Mutex // protects the fields below
	source func(n int) []byte
	idle   [directTier - shelfTier + 1][]*[]byte // the last used is the last
	made   [directTier - shelfTier + 1]int
}

// A span is a part of the address space.
type span struct{ from, to uintptr }

// UseDirect has pools take some large buffers from source, which returns nil
// when it has no more. Only the first source is used.
func UseDirect(source func(n int) []byte) {
	direct.mu.Lock()
	defer direct.mu.Unlock()
	if direct.source == nil {
		direct.source = source
		direct.spans.Store(new([]span))
	}
}

// IsDirect reports whether memory is part of a buffer from the source of
// UseDirect.
func IsDirect(b []byte) bool {
	spans := direct.spans.Load()
	if spans == nil {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return slices.ContainsFunc(*spans, func(s span) bool { return at >= s.from && at+uintptr(len(b)) <= s.to })
}

// idleDirect returns an idle buffer of a tier, or nil.
func idleDirect(t int) *[]byte {
	if t > directTier || direct.spans.Load() == nil {
		return nil
	}
	direct.mu.Lock()
	defer direct.mu.Unlock()
	list := &direct.idle[t-shelfTier]
	n := len(*list)
	if n == 0 {
		return nil
	}
	b := (*list)[n-1]
	*list = (*list)[:n-1]
	return b
}

// keepDirect keeps an idle buffer, if it is one of these.
func keepDirect(t int, b *[]byte) bool {
	if t > directTier || !IsDirect((*b)[:cap(*b)]) {
		return false
	}
	direct.mu.Lock()
	defer direct.mu.Unlock()
	direct.idle[t-shelfTier] = append(direct.idle[t-shelfTier], b)
	return true
}

// newDirect returns a new buffer of a tier, or nil.
func newDirect(t int) *[]byte {
	if t > directTier || direct.spans.Load() == nil {
		return nil
	}
	direct.mu.Lock()
	defer direct.mu.Unlock()
	if direct.made[t-shelfTier] == directEach {
		return nil
	}
	b := direct.source(1 << t)
	if b == nil {
		return nil
	}
	direct.made[t-shelfTier]++
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	spans := append(slices.Clone(*direct.spans.Load()), span{at, at + uintptr(len(b))})
	direct.spans.Store(&spans)
	return &b
}
