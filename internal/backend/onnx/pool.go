package onnx

import (
	"sync"

	"shoal/internal/backend/onnx/ort"
)

// A slotPool keeps the idle slots of an instance.
//
// Taking a slot never waits. If the number were fixed, a request that holds a
// slot (for example because its outputs are the inputs of a later step of an
// ensemble) could wait for an instance that waits for that slot. The number of
// slots is bounded by the requests in flight, each of which holds at most one;
// slots beyond maxIdle free their memory at once.
type slotPool struct {
	model *loaded
	use   *usedSession

	mu     sync.Mutex // protects the fields below
	idle   []*slot
	closed bool
}

const maxIdle = 4

func (p *slotPool) take() *slot {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s
	}
	p.mu.Unlock()
	n := len(p.model.outputs)
	s := &slot{pool: p, model: p.model, call: ort.NewCall(p.use.session, p.model.runOptions), region: p.use.region()}
	s.values, s.owned, s.outs = make([]ort.Value, n), make([]bool, n), make([]output, n)
	return s
}

func (p *slotPool) put(s *slot) {
	s.empty()
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < maxIdle
	if keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		s.free()
	}
}

// trim frees the idle slots.
func (p *slotPool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.free()
	}
	p.idle = nil
}

func (p *slotPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.trim()
}
