package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"sync"

	"shoal/internal/infer"
	"shoal/internal/trace"
)

// A requestKey identifies a request: its batch's number and its index in the
// batch.
type requestKey struct {
	sequence uint64
	request  uint32
}

// clients are the clients of the batch that a worker runs. When the model asks
// whether one of them is gone, the worker is also told when it goes later.
// Clients of decoupled models are watched by their streams.
type clients struct {
	// cancel tells the worker that a request's client is gone.
	cancel func(key requestKey)

	mu       sync.Mutex // protects the fields below
	sequence uint64     // of the batch that runs; 0 for none
	requests []*infer.Request
	ended    chan struct{} // closed when the batch ends; nil while no client is watched

	// The context of the calls that the batch's own thread makes, and what ends
	// it; nil before the first.
	calls    context.Context
	endCalls func()
}

// begin sets the running batch.
func (c *clients) begin(sequence uint64, requests []*infer.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence, c.requests = sequence, requests
}

// end ends the batch; its requests are no longer ours.
func (c *clients) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence, c.requests = 0, nil
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
	if c.endCalls != nil {
		c.endCalls()
		c.calls, c.endCalls = nil, nil
	}
}

// calling returns the context of the calls that the running batch's own thread
// makes; nil when that is another batch. The first call makes it.
func (c *clients) calling(sequence uint64, begin func(parents []context.Context) (context.Context, func())) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sequence != c.sequence {
		return nil
	}
	if c.calls == nil {
		c.calls, c.endCalls = begin(c.parents())
	}
	return c.calls
}

// running returns the contexts of the requests in the running batch; none when
// that is another batch.
func (c *clients) running(sequence uint64) (list []context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sequence != c.sequence {
		return nil
	}
	return c.parents()
}

// parents returns the contexts of the requests. The caller has the mutex.
func (c *clients) parents() (list []context.Context) {
	for _, r := range c.requests {
		list = append(list, r.Context)
	}
	return list
}

// trace returns the record for a request that the model sends because of one in the
// running batch; nil when that is not traced.
func (c *clients) trace(key requestKey) (child *trace.Run) {
	c.tracing(key, func(r *trace.Run) { child = r.Child() })
	return child
}

// traced makes what trace has returned a part of the request's trace, if the batch
// still runs.
func (c *clients) traced(key requestKey, child *trace.Run) {
	c.tracing(key, func(r *trace.Run) { r.Adopt(child) })
}

func (c *clients) tracing(key requestKey, do func(*trace.Run)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key.sequence == c.sequence && uint64(key.request) < uint64(len(c.requests)) {
		do(c.requests[key.request].Trace)
	}
}

// watch reports whether the client of a request is gone. If not, the worker is
// told as soon as it is.
func (c *clients) watch(key requestKey) (gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key.sequence != c.sequence || uint64(key.request) >= uint64(len(c.requests)) {
		return false // the batch has ended
	}
	ctx := c.requests[key.request].Context
	if ctx == nil {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	go c.await(ctx, key, c.ended)
	return false
}

func (c *clients) await(ctx context.Context, key requestKey, ended <-chan struct{}) {
	select {
	case <-ctx.Done():
		c.cancel(key)
	case <-ended:
	}
}

// watch answers a model that asks whether a client is gone.
func (l *link) watch(payload []byte) error {
	ask, key, err := readQuestion(payload)
	if err != nil {
		return err
	}
	value := 0.0
	if l.clients.watch(key) {
		value = 1
	}
	return l.reply(ask, value, nil)
}

// readQuestion reads a worker's question about a request.
func readQuestion(payload []byte) (ask int64, key requestKey, err error) {
	var msg struct {
		Ask      int64
		Sequence uint64
		Request  uint32
	}
	if err := json.Unmarshal(payload, &msg); err != nil {
		return 0, key, wireFault("a question that cannot be read: %v", err)
	}
	return msg.Ask, requestKey{msg.Sequence, msg.Request}, nil
}

// cancel tells the worker that a request's client is gone.
func (l *link) cancel(key requestKey) {
	b := binary.LittleEndian.AppendUint64(nil, key.sequence)
	_ = l.send(frameCancel, binary.LittleEndian.AppendUint32(b, key.request)) // a worker that is gone need not know
}
