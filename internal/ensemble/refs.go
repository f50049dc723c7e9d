package ensemble

import "sync/atomic"

// refs counts the uses of something.
type refs struct{ n atomic.Int64 }

func (r *refs) add(n int) { r.n.Add(int64(n)) }

// drop ends n uses and reports whether there are none any more.
func (r *refs) drop(n int) bool {
	left := r.n.Add(-int64(n))
	if left < 0 {
		panic("BUG: ensemble: a tensor was released twice")
	}
	return left == 0
}
