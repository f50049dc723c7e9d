package grpcserver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"shoal/internal/accesslog"
	"shoal/internal/infer"
)

// A call is one call and its stream. Its context is its Caller, so that a queue
// can recognise it. It is not reused when it is over, as handlers may keep its
// context.
type call struct {
	infer.Caller

	conn *conn
	id   uint32
	req  *request

	// What arrives. The first group belongs to the goroutine that reads the
	// connection; the second is handed over with the call, or through inbox.
	assembly assembly
	received int64 // for content-length
	started  bool  // a runner has it
	// heldByOthers is how much of the budget the other calls of the connection
	// hold.
	heldByOthers int64

	message message // of a call with one message
	inErr   error   // why there is none, or not only one
	inbox   *inbox  // of a stream

	// What the handler chose to send.
	compressor encoding.Compressor // of messages; nil for none
	compress   string              // its name, empty when the handler chose none

	access *accesslog.Entry // nil when there is no access log

	ended atomic.Bool // no longer one of the connection's streams

	// These are protected by the connection's mutex.
	inWindow     int64 // what the client may still send
	unacked      int64 // read and not yet granted again
	need         int64 // missing bytes of a message
	outWindow    int64 // what the client lets us send, minus its setting for all streams
	turnLeft     int64 // what it may send before it is another call's turn
	links        [listKinds]link
	sent         int64      // bytes of messages that were put out
	arrived      int64      // bytes that the client has begun to send
	paces        *callPaces // made when it was found waiting
	charged      int64      // what it holds of the budget in addition to its messages
	arriving     int64      // how much of an incomplete message has arrived
	delivering   bool       // the reader is adding to its messages
	handedOver   bool       // a handler has its message
	running      bool       // a runner has it
	cutOff       bool       // the connection no longer has it, but its handler runs
	sending      bool       // a part of a message was sent
	remoteClosed bool       // the client has sent everything
	headerSent   bool
	header       metadata.MD
	trailer      metadata.MD
	wake         chan struct{} // made when something must be waited for

	mu     sync.Mutex // protects the fields below
	err    error      // of the context
	inner  context.Context
	cancel context.CancelFunc
	values context.Context
}

// A message is a message from the wire.
type message struct {
	data       mem.BufferSlice
	compressed bool
	there      bool
}

// streams reports whether the client sends a stream of messages.
func (c *call) streams() bool { return c.req.method != nil && c.req.method.clientStreams }

// free gives the message's memory back. It may be called again.
func (m *message) free() {
	m.data.Free()
	*m = message{}
}

// callContext is a call as a context. Everything but its end is made when it is
// first used.
type callContext call

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.req.timed {
		return time.Time{}, false
	}
	return c.inner.Deadline()
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.innerLocked().Done()
}

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner.Err()
	}
	return c.err
}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return (*call)(c)
	}
	c.mu.Lock()
	if c.values == nil {
		ctx := metadata.NewIncomingContext(c.innerLocked(), c.req.metadata())
		ctx = peer.NewContext(ctx, &c.conn.peer)
		c.values = grpc.NewContextWithServerTransportStream(ctx, (*transportStream)(c))
	}
	values := c.values
	c.mu.Unlock()
	return values.Value(key)
}

// callKey is the key of the call in its context.
type callKey struct{}

// innerLocked returns the context behind the call.
func (c *callContext) innerLocked() context.Context {
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(context.Background())
		if c.err != nil {
			c.cancel()
		}
	}
	return c.inner
}

// limit sets the call's deadline, before anybody else has the call.
func (c *call) limit(d time.Duration) {
	c.inner, c.cancel = context.WithTimeout(context.Background(), d)
	context.AfterFunc(c.inner, c.expire)
}

// end ends the context of a call that is over.
func (c *call) end() {
	c.mu.Lock()
	if c.err == nil {
		c.err = context.Canceled
	}
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	if c.inbox != nil {
		c.inbox.close(errCancelled)
	}
}

// cut ends a call that is not answered, and removes it from its queue.
func (c *call) cut() {
	c.end()
	c.Leave()
}

// wakeLocked wakes a sender.
func (c *call) wakeLocked() {
	if c.wake != nil {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}
