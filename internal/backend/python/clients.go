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

// clients are the clients of the batches that a worker has. When the model asks
// whether one of them is gone, the worker is also told when it goes later.
// Clients of decoupled models are watched by their streams.
type clients struct {
	// cancel tells the worker that a request's client is gone.
	cancel func(key requestKey)

	mu      sync.Mutex // protects the fields below
	batches [2]sentBatch
}

// A sentBatch is a batch that the worker has; the zero value is none.
type sentBatch struct {
	sequence uint64
	requests []*infer.Request
	ended    chan struct{} // closed when the batch ends; nil while no client is watched

	// The context of the calls that the batch's own thread makes, and what ends
	// it; nil before the first.
	calls    context.Context
	endCalls func()
}

// begin adds a batch that the worker gets.
func (c *clients) begin(sequence uint64, requests []*infer.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.find(0); b != nil {
		b.sequence, b.requests = sequence, requests
	}
}

// end removes a batch; its requests are no longer ours.
func (c *clients) end(sequence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.find(sequence)
	if b == nil {
		return
	}
	if b.ended != nil {
		close(b.ended)
	}
	if b.endCalls != nil {
		b.endCalls()
	}
	*b = sentBatch{}
}

// calling returns the context of the calls that a batch's own thread makes; nil
// when the worker does not have the batch. The first call makes it.
func (c *clients) calling(sequence uint64, begin func(parents []context.Context) (context.Context, func())) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.find(sequence)
	if b == nil || sequence == 0 {
		return nil
	}
	if b.calls == nil {
		b.calls, b.endCalls = begin(b.parents())
	}
	return b.calls
}

// find returns the batch of that number, nil when the worker does not have it.
func (c *clients) find(sequence uint64) *sentBatch {
	for i := range c.batches {
		if c.batches[i].sequence == sequence {
			return &c.batches[i]
		}
	}
	return nil
}

// request returns a request of a batch that the worker has, and its batch.
func (c *clients) request(key requestKey) (*infer.Request, *sentBatch) {
	b := c.find(key.sequence)
	if b == nil || uint64(key.request) >= uint64(len(b.requests)) {
		return nil, nil
	}
	return b.requests[key.request], b
}

// running returns the contexts of the requests in a batch that the worker has.
func (c *clients) running(sequence uint64) []context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.find(sequence)
	if b == nil {
		return nil
	}
	return b.parents()
}

// parents returns the contexts of the requests.
func (b *sentBatch) parents() (list []context.Context) {
	for _, r := range b.requests {
		list = append(list, r.Context)
	}
	return list
}

// trace returns the record for a request that the model sends because of one that
// it has; nil when that is not traced.
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
	if r, _ := c.request(key); r != nil {
		do(r.Trace)
	}
}

// watch reports whether the client of a request is gone. If not, the worker is
// told as soon as it is.
func (c *clients) watch(key requestKey) (gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, b := c.request(key)
	if r == nil {
		return false // the batch has ended
	}
	ctx := r.Context
	if ctx == nil {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	if b.ended == nil {
		b.ended = make(chan struct{})
	}
	go c.await(ctx, key, b.ended)
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
