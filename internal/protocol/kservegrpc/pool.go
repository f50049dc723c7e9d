package kservegrpc

import (
	"math/bits"
	"sync"
)

// A bufferPool lends the memory that messages are received into and sent from.
// grpc's own pool clears every buffer that it lends, which for a large tensor
// costs as much as another copy of it; here a buffer is always written before
// it is read, so nothing is cleared.
type bufferPool struct {
	tiers [maxTier - minTier + 1]sync.Pool
}

// Buffers have a power of two between 2 KiB (grpc does not give back 1 KiB and
// less) and 16 MiB; larger ones are left to the garbage collector.
const (
	minTier = 11
	maxTier = 24
)

var buffers bufferPool

// Get implements mem.BufferPool.
func (p *bufferPool) Get(n int) *[]byte {
	tier := max(bits.Len(uint(max(n, 1)-1)), minTier)
	if tier > maxTier {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.tiers[tier-minTier].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<tier)
	return &b
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) {
	tier := bits.Len(uint(cap(*b))) - 1
	if tier < minTier || tier > maxTier || cap(*b) != 1<<tier {
		return // not one of ours
	}
	p.tiers[tier-minTier].Put(b)
}
