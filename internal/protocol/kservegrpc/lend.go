package kservegrpc

import (
	"google.golang.org/grpc/mem"

	"shoal/internal/inflight"
)

// lendSize is how large an output must be to be lent: a smaller one is copied
// sooner than it is held.
const lendSize = 64 << 10

// lendable returns the data of the last output, nil when it is not worth lending.
func (r reply) lendable() []byte {
	outputs := r.resp.Outputs
	if len(outputs) == 0 {
		return nil
	}
	if data := outputs[len(outputs)-1].Data; len(data) >= lendSize {
		return data
	}
	return nil
}

// A lender gives an output's memory back to the model. It is the pool of a buffer
// that is freed once.
type lender struct {
	m      *message
	data   []byte
	budget *inflight.Budget
}

// answer returns the answer to m. When it lends an output it releases m with that,
// else the caller does. It fails as infer does.
func (x encoder) answer(m *message) (*encoded, error) {
	r := reply{resp: &m.req.Response, id: m.id}
	data := r.lendable()
	if data == nil {
		return x.infer(r)
	}
	size := r.size()
	if err := checkSize(size, x.limit); err != nil {
		return nil, err
	}
	budget := x.memory.Budget()
	if err := budget.Acquire(int64(len(data)), 0); err != nil { // it may become a copy
		return nil, err
	}
	size -= len(data)
	e := x.fill(x.memory.Get(size), size, r.appendHead)
	e.lender = lender{m, data, budget}
	e.data[1], e.n = mem.NewBuffer(&e.lender.data, &e.lender), 2
	return e, nil
}

// Get implements mem.BufferPool.
func (l *lender) Get(int) *[]byte { panic("BUG: kservegrpc: a lender has no memory of its own") }

// Put implements mem.BufferPool.
func (l *lender) Put(*[]byte) {
	l.budget.Release(int64(len(l.data)))
	l.m.release()
	*l = lender{}
}
