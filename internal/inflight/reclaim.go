package inflight

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A Reclaimer keeps the process's memory near its budget: it sets the garbage
// collector's limit, and returns memory to the system when a peak is over and
// when the server has been calm. An idle process would otherwise keep for
// minutes what it needed once.
type Reclaimer struct {
	budget  *Budget
	setHeap bool
	trim    func()
	stop    chan struct{}
	wg      sync.WaitGroup
}

const (
	reclaimTick = time.Second
	// A peak is worth reclaiming from this size on. It is over when use has
	// stayed below a quarter of it for so many ticks.
	leastPeak  = 16 << 20
	quietTicks = 5
	// heapRoom is the least that the collector's limit leaves for what is not
	// counted by the budget.
	heapRoom = 24 << 20
	// A server that makes so little garbage that it was not collected for so many
	// ticks is calm. Then garbage of this size, or of this part of what is in use,
	// is worth a collection.
	calmTicks   = 15
	leastUnused = 4 << 20
	unusedPart  = 8
)

// StartReclaimer watches b until Close. With setHeap it sets Go's memory limit,
// which must then be nobody else's. trim is called before memory is returned, so
// that others give up what they keep.
func StartReclaimer(b *Budget, setHeap bool, trim func()) *Reclaimer {
	r := &Reclaimer{budget: b, setHeap: setHeap, trim: trim, stop: make(chan struct{})}
	r.wg.Go(r.run)
	return r
}

// Close ends the watch.
func (r *Reclaimer) Close() {
	close(r.stop)
	r.wg.Wait()
}

func (r *Reclaimer) run() {
	ticker := time.NewTicker(reclaimTick)
	defer ticker.Stop()
	var p peak
	var c calm
	// The most that was in use during the last tick and the one before: what
	// the last collection found may be from either.
	used, before := r.budget.Used(), int64(0)
	for {
		if r.setHeap {
			debug.SetMemoryLimit(heapLimit(r.budget.Limit(), max(used, before), shelfBytes.Load(), heapInUse()))
		}
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		used, before = r.budget.ResetPeak(), used
		if p.over(used) {
			r.trim()
			dropIdle()
			runtime.GC() // sync.Pool keeps its content for one collection more
			debug.FreeOSMemory()
		} else if c.over(readHeap()) {
			debug.FreeOSMemory()
		}
	}
}

// A peak tells when a time of high use is over.
type peak struct {
	high  int64 // the most since memory was last returned
	quiet int   // ticks in a row with far less
}

// over takes the most that was in use during a tick and reports whether the
// peak before it is over.
func (p *peak) over(used int64) bool {
	p.high = max(p.high, used)
	if p.high < leastPeak || used > p.high/4 {
		p.quiet = 0
		return false
	}
	if p.quiet++; p.quiet < quietTicks {
		return false
	}
	*p = peak{high: used}
	return true
}

// heapUse is what Go's heap has of the system's memory.
type heapUse struct {
	collections uint64 // so far
	live        uint64 // bytes that the last collection found in use
	resident    uint64 // bytes that the system has given
}

// A calm tells when memory that is not used is worth a collection.
type calm struct {
	collections uint64
	ticks       int // in a row without a collection
}

// over takes the heap at a tick and reports whether the server has been calm for
// long enough.
func (c *calm) over(h heapUse) bool {
	if h.collections != c.collections {
		*c = calm{collections: h.collections}
	}
	if c.ticks++; c.ticks < calmTicks || h.resident < h.live+max(leastUnused, h.live/unusedPart) {
		return false
	}
	c.ticks = 0
	return true
}

// heapLimit returns the memory limit for Go's collector, with a budget of limit
// bytes, of which used were in use: what the budget leaves beside the shelves,
// with 5 % to spare, and room for what else is in use. That room is twice its
// size, as the collector has by default, so that only the budget's part is held
// tight.
func heapLimit(limit, used, shelves, inUse int64) int64 {
	limit, used = max(0, limit-shelves), max(0, used-shelves)
	return limit + limit/20 + max(heapRoom, 2*(inUse-used))
}

// heapInUse returns the bytes that the last collection found in use, with
// stacks and the runtime's own memory.
func heapInUse() int64 {
	return int64(sum("/gc/heap/live:bytes", "/memory/classes/heap/stacks:bytes", "/memory/classes/metadata/other:bytes", "/memory/classes/other:bytes"))
}

func readHeap() heapUse {
	return heapUse{
		collections: sum("/gc/cycles/total:gc-cycles"),
		live:        sum("/gc/heap/live:bytes"),
		resident:    sum("/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes"),
	}
}

// sum adds up metrics of Go's runtime.
func sum(names ...string) uint64 {
	total := uint64(0)
	for _, name := range names {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			total += sample[0].Value.Uint64()
		}
	}
	return total
}
