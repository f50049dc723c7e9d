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

	"shoal/internal/infer"
)

// A call is one call and the stream that it came on. Its context is its Caller,
// so that a queue can tell it from one that must be waited for. It is not used
// again when it is over, as handlers may keep its context.
type call struct {
	infer.Caller

	conn *conn
	id   uint32
	req  *request

	// What arrives. The first group belongs to the goroutine that reads the
	// connection; the second is handed over with the call, or by inbox.
	assembly assembly
	received int64 // for content-length
	started  bool  // with a worker
	// heldByOthers is what the other calls of the connection hold of the budget.
	heldByOthers int64

	message message // of a call with one message
	inErr   error   // why there is none, or not only one
	inbox   *inbox  // of a stream

	// What the handler chose to send.
	compressor encoding.Compressor // of messages; nil for none
	compress   string              // its name, empty when nobody chose

	ended atomic.Bool // no longer one of the connection's streams

	// These are protected by the connection's mutex.
	inWindow     int64 // what the client may still send
	unacked      int64 // what was read of it and not yet granted again
	need         int64 // what is missing of a message
	outWindow    int64 // what the client lets us send, less its setting for all streams
	turnLeft     int64 // what it may send before others have their turn
	links        [listKinds]link
	sent         int64      // bytes of messages that were put out
	arrived      int64      // bytes that the client has begun to send
	paces        *callPaces // made when it was seen to wait
	charged      int64      // what it holds of the budget besides its messages
	arriving     int64      // what has arrived of a message that is not complete
	delivering   bool       // the reader is adding to its messages
	handedOver   bool       // a handler has its message
	running      bool       // a worker has it
	cutOff       bool       // and it is no longer one of the connection's
	sending      bool       // a part of a message is out
	remoteClosed bool       // the client has sent all
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

// A message is one as it came off the wire.
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

// callContext is a call as a context. What a context has beyond an end is made
// when somebody asks for it.
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

// callKey is what a call's context has the call under.
type callKey struct{}

// innerLocked returns the context that stands behind the call.
func (c *callContext) innerLocked() context.Context {
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(context.Background())
		if c.err != nil {
			c.cancel()
		}
	}
	return c.inner
}

// limit gives the call its deadline. It is called before anybody else has the
// call.
func (c *call) limit(d time.Duration) {
	c.inner, c.cancel = context.WithTimeout(context.Background(), d)
	context.AfterFunc(c.inner, c.expire)
}

// end ends the call's context, as the call is over.
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

// cut ends a call that is not answered, and takes it out of its queue.
func (c *call) cut() {
	c.end()
	c.Leave()
}

// wakeLocked lets a sender look again.
func (c *call) wakeLocked() {
	if c.wake != nil {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}
