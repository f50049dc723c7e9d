package inflight

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A Reclaimer keeps the process's memory near its budget: it sets the garbage
// collector's limit, and returns memory to the system when a peak is over. An
// idle process would otherwise keep for minutes what it needed once.
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
	// The most that was in use during the last tick and the one before: what
	// the last collection found may be from either.
	used, before := r.budget.Used(), int64(0)
	for {
		if r.setHeap {
			debug.SetMemoryLimit(heapLimit(r.budget.Limit(), max(used, before), heapInUse()))
		}
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		used, before = r.budget.ResetPeak(), used
		if p.over(used) {
			r.trim()
			runtime.GC() // sync.Pool keeps its content for one collection more
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

// heapLimit returns the memory limit for Go's collector: the budget with 5 % to
// spare, and room for what else is in use. That room is twice its size, as the
// collector has by default, so that only the budget's part is held tight.
func heapLimit(limit, used, inUse int64) int64 {
	return limit + limit/20 + max(heapRoom, 2*(inUse-used))
}

// heapInUse returns the bytes that the last collection found in use, with
// stacks and the runtime's own memory.
func heapInUse() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples)
	sum := int64(0)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += int64(s.Value.Uint64())
		}
	}
	return sum
}
