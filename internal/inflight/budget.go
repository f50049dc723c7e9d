// Package inflight bounds the memory that clients can claim. One Budget counts
// the bytes of all requests and answers in flight, over all protocols. Memory
// is claimed when bytes arrive, not when a client announces them. A claim that
// does not fit waits for a moment and is then refused, so that the next client
// can be served.
//
// Everything here is safe for concurrent use, except that a Claim belongs to
// one goroutine at a time.
package inflight

import (
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// Small is the most bytes that a request may hold to count as small.
const Small = 128 << 10

const (
	// reserve is the part of the budget, as a divisor, that only small
	// requests may use. Large requests that fill the budget cannot keep
	// health checks and small requests out.
	reserve = 8
	// smallWait is how many times as long as others a small claim waits. It needs
	// little, and slow holders that are ended for it take a second to be known and
	// to go.
	smallWait = 3
)

// DefaultWait is how long a claim that does not fit waits; a small one waits longer.
const DefaultWait = time.Second

// A Budget is a number of bytes that requests and answers in flight share. A
// nil Budget has no limit and counts nothing.
type Budget struct {
	limit int64
	wait  time.Duration

	used    atomic.Int64
	peak    atomic.Int64 // the most used since the last ResetPeak
	refused atomic.Int64
	// How many claims wait, and how many of them are small; read without the
	// mutex.
	waiting, waitingSmall atomic.Int32

	relief    sync.WaitGroup // the goroutine that ends slow holders
	relieving atomic.Bool    // it runs; changed under the mutex

	mu      sync.Mutex // protects the fields below
	small   waiters
	large   waiters
	holders map[Holder]pace
	wanted  int64 // bytes that Try has refused since it last looked
}

// waiters are claims that wait, in the order of arrival.
type waiters struct{ queue []*waiter }

// A waiter is one claim that waits.
type waiter struct {
	n       int64
	granted chan struct{} // closed when the bytes are the waiter's
}

// New returns a budget of limit bytes. Claims that do not fit wait for at most
// wait; zero means DefaultWait.
func New(limit int64, wait time.Duration) *Budget {
	if wait == 0 {
		wait = DefaultWait
	}
	return &Budget{limit: limit, wait: wait, holders: make(map[Holder]pace)}
}

// Limit returns the budget's bytes, 0 for no limit.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}

// Used returns how many bytes are in use.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// hasRoom reports whether n bytes fit beside what is in use. It takes none of them.
func (b *Budget) hasRoom(n int64) bool { return b == nil || b.used.Load()+n <= b.limit }

// Refused returns how many claims were refused.
func (b *Budget) Refused() int64 {
	if b == nil {
		return 0
	}
	return b.refused.Load()
}

// ceiling returns how much may be in use for a request that then holds holds
// bytes.
func (b *Budget) ceiling(holds int64) int64 {
	if holds <= Small {
		return b.limit
	}
	return b.limit - b.limit/reserve
}

// Acquire claims n bytes for a request that already holds held. If they do not
// fit it waits for a while, and then fails with ResourceExhausted. Give them
// back with Release.
func (b *Budget) Acquire(n, held int64) error {
	if b == nil || n <= 0 {
		return nil
	}
	if b.fits(n, held) {
		return nil
	}
	if held+n > b.ceiling(held+n) {
		b.refused.Add(1)
		return b.never(held + n)
	}
	return b.await(n, held+n <= Small)
}

// fits claims n bytes for a request that already holds held, if they fit now,
// and reports whether they did.
func (b *Budget) fits(n, held int64) bool {
	if b == nil {
		return true
	}
	ahead := &b.waiting
	if held+n <= Small {
		ahead = &b.waitingSmall // small claims need not wait for large ones
	}
	if ahead.Load() > 0 || !b.try(n, b.ceiling(held+n)) {
		return false
	}
	b.watch()
	return true
}

// watch has the holders watched when much of the budget is in use.
func (b *Budget) watch() {
	if b.used.Load() <= b.watchFrom() || b.relieving.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.relieveLocked()
}

// try claims n bytes if no more than ceiling are in use then.
func (b *Budget) try(n, ceiling int64) bool {
	used := b.used.Add(n)
	if used > ceiling {
		b.used.Add(-n)
		return false
	}
	b.raise(used)
	return true
}

func (b *Budget) raise(used int64) {
	for peak := b.peak.Load(); used > peak && !b.peak.CompareAndSwap(peak, used); {
		peak = b.peak.Load()
	}
}

// await waits for n bytes.
func (b *Budget) await(n int64, small bool) error {
	w := &waiter{n: n, granted: make(chan struct{})}
	b.mu.Lock()
	queue, wait := &b.large, b.wait
	if small {
		queue, wait = &b.small, smallWait*b.wait
	}
	queue.queue = append(queue.queue, w)
	b.countLocked()
	b.grantLocked() // memory may have been released before this claim counted as waiting
	if b.waiting.Load() > 0 {
		b.relieveLocked()
	}
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !queue.remove(w) {
		return nil // granted at the last moment
	}
	b.grantLocked() // this claim may have blocked the next one
	b.countLocked()
	b.refused.Add(1)
	return b.full(n)
}

// grantLocked grants waiting claims that fit, small ones first.
func (b *Budget) grantLocked() {
	b.grantFromLocked(&b.small, b.limit)
	b.grantFromLocked(&b.large, b.ceiling(Small+1))
	b.countLocked()
}

// countLocked updates the numbers of waiting claims that are read without the
// mutex.
func (b *Budget) countLocked() {
	b.waitingSmall.Store(int32(len(b.small.queue)))
	b.waiting.Store(int32(len(b.small.queue) + len(b.large.queue)))
}

func (b *Budget) grantFromLocked(q *waiters, ceiling int64) {
	for len(q.queue) > 0 && b.try(q.queue[0].n, ceiling) {
		close(q.queue[0].granted)
		q.queue[0] = nil
		q.queue = q.queue[1:]
	}
}

func (q *waiters) remove(w *waiter) bool {
	for i := range q.queue {
		if q.queue[i] == w {
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			return true
		}
	}
	return false
}

// Try claims n bytes for a request that already holds held, if they fit now,
// and reports whether they did.
func (b *Budget) Try(n, held int64) bool {
	if b.fits(n, held) {
		return true
	}
	b.refused.Add(1)
	if held+n <= Small { // large requests had their share
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wanted += n
		b.relieveLocked()
	}
	return false
}

// ErrFull returns the error for a claim of n bytes that Try refused.
func (b *Budget) ErrFull(n int64) error { return b.full(n) }

// Force claims n bytes whether they fit or not, for memory that is already in
// use.
func (b *Budget) Force(n int64) {
	if b != nil {
		b.raise(b.used.Add(n))
		b.watch()
	}
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.used.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.grantLocked()
		b.mu.Unlock()
	}
}

// ResetPeak returns the most that was in use since the last call.
func (b *Budget) ResetPeak() int64 {
	if b == nil {
		return 0
	}
	return b.peak.Swap(b.used.Load())
}

// Check fails when a request of n bytes can never fit.
func (b *Budget) Check(n int64) error {
	if b == nil || n <= b.ceiling(n) {
		return nil
	}
	b.refused.Add(1)
	return b.never(n)
}

func (b *Budget) never(n int64) error {
	return status.Rejectf(reject.Overloaded, status.ResourceExhausted,
		"the request needs %d bytes of memory, more than the %d that one request may have; send less at once or raise --max-inflight-bytes (%d)",
		n, b.ceiling(n), b.limit)
}

func (b *Budget) full(n int64) error {
	return status.Rejectf(reject.Overloaded, status.ResourceExhausted,
		"requests and answers in flight hold %d of the server's %d bytes, and %d more do not fit; try again later or raise --max-inflight-bytes",
		b.used.Load(), b.limit, n)
}

// A Claim is one request's share of a budget. The zero value belongs to no
// budget and has no limit.
type Claim struct {
	budget *Budget
	held   int64
}

// Claim returns an empty claim on the budget.
func (b *Budget) Claim() Claim { return Claim{budget: b} }

// Budget returns the claim's budget, nil for none.
func (c *Claim) Budget() *Budget { return c.budget }

// Acquire claims n bytes more, as Budget.Acquire does.
func (c *Claim) Acquire(n int64) error {
	if err := c.budget.Acquire(n, c.held); err != nil {
		return err
	}
	c.held += n
	return nil
}

// Force claims n bytes more whether they fit or not.
func (c *Claim) Force(n int64) {
	c.budget.Force(n)
	c.held += n
}

// Release gives back the whole claim. It can be used again.
func (c *Claim) Release() {
	c.budget.Release(c.held)
	c.held = 0
}
