package infer

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Copies copies the tensors of a batch into an instance's memory, one batch
// after another. The batch's requests wait for it, and one core copies about 8
// GB/s: copying the images of a large batch would take longer than a GPU needs
// to process them, so several cores share such a copy.
type Copies struct {
	parts []part // parts to copy in End, of a batch that is shared
	later bool
	next  atomic.Int64 // the first part that no goroutine has taken
	size  int
	wg    sync.WaitGroup
}

type part struct{ dst, src []byte }

const (
	// partSize is what a goroutine copies at a time, and the size that makes
	// another goroutine worth starting.
	partSize = 512 << 10
	// maxCopiers leaves memory bandwidth for others.
	maxCopiers = 8
)

// Begin starts a batch of size bytes.
func (c *Copies) Begin(size int) { c.size, c.later = size, size >= 4*partSize }

// Add copies the data to dst, which must be large enough, now or in End, and
// returns the number of bytes.
func (c *Copies) Add(dst []byte, d Data) int {
	if !c.later {
		return d.CopyTo(dst)
	}
	n := c.note(dst, d.First)
	for _, p := range d.Rest {
		n += c.note(dst[n:], p)
	}
	return n
}

func (c *Copies) note(dst, src []byte) int {
	size := len(src)
	for len(src) > 0 {
		n := min(len(src), partSize)
		c.parts = append(c.parts, part{dst[:n], src[:n]})
		dst, src = dst[n:], src[n:]
	}
	return size
}

// End returns when everything that was added is copied.
func (c *Copies) End() {
	if len(c.parts) == 0 {
		return
	}
	for range min(runtime.GOMAXPROCS(0), maxCopiers, c.size/partSize) - 1 {
		c.wg.Go(c.work)
	}
	c.work()
	c.wg.Wait()
	clear(c.parts) // drop references to the requests' memory
	c.parts = c.parts[:0]
	c.next.Store(0)
}

// work copies parts until there are no more.
func (c *Copies) work() {
	for {
		i := int(c.next.Add(1)) - 1
		if i >= len(c.parts) {
			return
		}
		copy(c.parts[i].dst, c.parts[i].src)
	}
}
