package inflight

import (
	"math/bits"
	"sync"
)

// A Pool provides the memory for messages that are received and sent, and
// counts it against a budget. It implements grpc's mem.BufferPool. Buffers have
// undefined content: clearing a large one would cost as much as another copy.
//
// All pools share their idle memory.
type Pool struct{ budget *Budget }

// NewPool returns a pool whose buffers count against b, which may be nil. A nil
// pool counts nothing.
func NewPool(b *Budget) *Pool { return &Pool{budget: b} }

// The sizes of buffers are powers of two between 2 KiB (grpc does not return 1
// KiB and less) and 16 MiB; the garbage collector takes larger ones.
const (
	minTier = 11
	maxTier = 24
)

// Buffers from shelfTier on (128 KiB) are kept in shelves.
const shelfTier = 17

var (
	tiers   [shelfTier - minTier]sync.Pool
	shelves [maxTier - shelfTier + 1]shelf
)

// idle returns an idle buffer of a tier, or nil.
func idle(t int) *[]byte {
	if t >= shelfTier {
		if b := idleDirect(t); b != nil {
			return b
		}
		return shelves[t-shelfTier].get()
	}
	b, _ := tiers[t-minTier].Get().(*[]byte)
	return b
}

// keep keeps an idle buffer of a tier, a large one only within the budget.
func (p *Pool) keep(t int, b *[]byte) {
	switch {
	case t < shelfTier:
		tiers[t-minTier].Put(b)
	case keepDirect(t, b):
	case p.Budget().hasRoom(idleBytes.Load() + int64(cap(*b))):
		ageShelves()
		shelves[t-shelfTier].put(b)
	default:
		shelves[t-shelfTier].discard(b)
	}
}

// tier returns the power of two for a buffer of n bytes, and whether such
// buffers are kept.
func tier(n int) (int, bool) {
	t := max(bits.Len(uint(max(n, 1)-1)), minTier)
	return t, t <= maxTier
}

// size returns the capacity of a buffer of n bytes.
func size(n int) int64 {
	if t, kept := tier(n); kept {
		return 1 << t
	}
	return int64(n)
}

// Budget returns what the pool's buffers count against.
func (p *Pool) Budget() *Budget {
	if p == nil {
		return nil
	}
	return p.budget
}

// Get returns a buffer of n bytes, whether it fits the budget or not.
func (p *Pool) Get(n int) *[]byte {
	p.Budget().Force(size(n))
	return p.take(n)
}

// Claim returns a buffer of n bytes for a request that already holds held. It
// waits and fails as Budget.Acquire does.
func (p *Pool) Claim(n int, held int64) (*[]byte, error) {
	if err := p.Budget().Acquire(size(n), held); err != nil {
		return nil, err
	}
	return p.take(n), nil
}

// Reuse returns a buffer of n bytes if one is idle and fits the budget now, and
// nil otherwise. It allocates nothing, so that a client cannot cause an
// allocation by announcing bytes.
func (p *Pool) Reuse(n int, held int64) *[]byte {
	t, kept := tier(n)
	if !kept {
		return nil
	}
	b := idle(t)
	if b == nil {
		return nil
	}
	if !p.Budget().fits(1<<t, held) {
		p.keep(t, b)
		return nil
	}
	*b = (*b)[:n]
	return b
}

func (p *Pool) take(n int) *[]byte {
	t, kept := tier(n)
	if kept {
		if b := idle(t); b != nil {
			*b = (*b)[:n]
			return b
		}
	}
	if t >= shelfTier {
		if b := newDirect(t); b != nil {
			*b = (*b)[:n]
			return b
		}
	}
	if t >= shelfTier && !p.Budget().hasRoom(idleBytes.Load()) {
		dropIdle() // of other sizes
	}
	if kept && t >= shelfTier {
		b := shelves[t-shelfTier].add(1 << t)
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, size(n))
	return &b
}

// Put takes a buffer back. Its length may have changed, its capacity not.
func (p *Pool) Put(b *[]byte) {
	n := cap(*b)
	p.Budget().Release(int64(n))
	if t, kept := tier(n); kept && n == 1<<t {
		p.keep(t, b)
	}
}
