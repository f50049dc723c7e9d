package sim

import (
	"time"

	"shoal/internal/sched"
)

// An event is something that happens at a time: a batch ends, or a request comes.
type event struct {
	at     time.Duration
	caller int              // who sends it, one of a stream or nobody
	batch  *sched.Execution // that ends, nil when a request comes
	order  uint64           // of those at one time, the one that was pushed first comes first
}

// stream is the caller of a request that comes without one, and nobody that of an event in
// which none comes.
const stream, nobody = -1, -2

// events are a heap, the next one first.
type events struct {
	list   []event
	pushed uint64
}

func (h *events) push(e event) {
	h.pushed++
	e.order = h.pushed
	h.list = append(h.list, e)
	i := len(h.list) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h.list[i].before(&h.list[parent]) {
			break
		}
		h.list[i], h.list[parent] = h.list[parent], h.list[i]
		i = parent
	}
}

func (h *events) pop() event {
	first := h.list[0]
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && h.list[child+1].before(&h.list[child]) {
			child++
		}
		if !h.list[child].before(&h.list[i]) {
			return first
		}
		h.list[i], h.list[child] = h.list[child], h.list[i]
		i = child
	}
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }
