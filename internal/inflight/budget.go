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
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// Small is the most bytes that a request may hold to count as small.
const Small = 128 << 10

const (
	// reserve is the part of the budget, as a divisor, that large requests may
	// not use. Half of it is for small requests alone, so that requests that
	// fill the budget cannot keep health checks out, and the other half is for
	// medium ones, too.
	reserve = 8
	// A request is medium that holds at most this part of the budget, as a divisor.
	mediumPart = 64
	// patient is how many times as long as large claims the others wait. They
	// need little, and slow holders that are ended for them take a second to be
	// known and to go.
	patient = 3
)

// DefaultWait is how long a claim of a large request that does not fit waits.
const DefaultWait = time.Second

// A Budget is a number of bytes that requests and answers in flight share. A
// nil Budget has no limit and counts nothing.
type Budget struct {
	limit int64
	wait  time.Duration

	used    atomic.Int64
	peak    atomic.Int64 // the most used since the last ResetPeak
	refused atomic.Int64
	// How many bytes the least request of those that wait would hold,
	// math.MaxInt64 when none waits; read without the mutex.
	least atomic.Int64

	relief    sync.WaitGroup // the goroutine that ends slow holders
	relieving atomic.Bool    // it runs; changed under the mutex

	mu      sync.Mutex // protects the fields below
	queue   []*waiter  // by their totals, then in the order of arrival
	holders map[Holder]pace
	wanted  int64 // bytes that Try has refused since it last looked
}

// A waiter is one claim that waits.
type waiter struct {
	n       int64
	total   int64         // what the request would hold with them
	granted chan struct{} // closed when the bytes are the waiter's
}

// New returns a budget of limit bytes. Claims that do not fit wait for at most
// wait; zero means DefaultWait.
func New(limit int64, wait time.Duration) *Budget {
	if wait == 0 {
		wait = DefaultWait
	}
	b := &Budget{limit: limit, wait: wait, holders: make(map[Holder]pace)}
	b.least.Store(math.MaxInt64)
	return b
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

// ceiling returns how much may be in use for a request that holds total bytes
// then.
func (b *Budget) ceiling(total int64) int64 {
	switch {
	case total <= Small:
		return b.limit
	case b.isLarge(total):
		return b.limit - b.limit/reserve
	}
	return b.limit - b.limit/reserve/2
}

func (b *Budget) isLarge(total int64) bool { return total > max(Small, b.limit/mediumPart) }

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
	return b.await(n, held+n)
}

// fits claims n bytes for a request that already holds held, if they fit now,
// and reports whether they did.
func (b *Budget) fits(n, held int64) bool {
	if b == nil {
		return true
	}
	if b.least.Load() <= held+n || !b.try(n, b.ceiling(held+n)) {
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

// await waits for n bytes, with which the request would hold total. Requests
// that would hold less go first: those that hold much cannot keep them out, and
// most end soon.
func (b *Budget) await(n, total int64) error {
	w := &waiter{n: n, total: total, granted: make(chan struct{})}
	wait := b.wait
	if !b.isLarge(total) {
		wait *= patient
	}
	b.mu.Lock()
	at, _ := slices.BinarySearchFunc(b.queue, total, func(w *waiter, total int64) int {
		return cmp.Or(cmp.Compare(w.total, total), -1) // behind its equals
	})
	b.queue = slices.Insert(b.queue, at, w)
	b.setLeastLocked()
	b.grantLocked() // memory may have been released before this claim counted as waiting
	if len(b.queue) > 0 {
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
	at = slices.Index(b.queue, w)
	if at < 0 {
		return nil // granted at the last moment
	}
	b.queue = slices.Delete(b.queue, at, at+1)
	b.grantLocked() // this claim may have blocked the next one
	b.refused.Add(1)
	return b.full(n)
}

// grantLocked grants waiting claims that fit, in their order.
func (b *Budget) grantLocked() {
	granted := 0
	for _, w := range b.queue {
		if !b.try(w.n, b.ceiling(w.total)) {
			break
		}
		close(w.granted)
		granted++
	}
	b.queue = slices.Delete(b.queue, 0, granted)
	b.setLeastLocked()
}

// setLeastLocked updates what is read of the queue without the mutex.
func (b *Budget) setLeastLocked() {
	least := int64(math.MaxInt64)
	if len(b.queue) > 0 {
		least = b.queue[0].total
	}
	b.least.Store(least)
}

// waiting reports whether claims wait.
func (b *Budget) waiting() bool { return b.least.Load() != math.MaxInt64 }

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
	if b.waiting() {
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
