package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/client"
	"shoal/internal/protocol/h2"
)

// Connect dials and sends the preface.
func (c *h2Conn) Connect(ctx context.Context) error {
	dialled, err := c.connect(func() (net.Conn, error) { return c.link.dial(ctx) })
	if dialled {
		c.greet()
	}
	return err
}

// greet resets the state for a new connection.
func (c *h2Conn) greet() {
	buf := c.in
	if buf == nil {
		buf = make([]byte, smallBuffer)
	}
	c.h2State = h2State{in: buf, frame: h2.MinMaxFrame, initial: h2.DefaultWindow, window: h2.DefaultWindow, lastID: noStream}
	c.out = appendHello(nil)
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(h2.DefaultTable, c.field)
	c.first = c.encode(h2.DefaultTable)
	c.later = c.encode(h2.DefaultTable)
}

// noStream makes the first stream 1; a client's streams have odd numbers.
const noStream = ^uint32(0)

// encode returns the header of a call. With a table size of zero it refers to
// no table, and may be sent at any time.
func (c *h2Conn) encode(table uint32) []byte {
	if table == 0 {
		c.encoder = hpack.NewEncoder(&c.block)
		c.encoder.SetMaxDynamicTableSize(0)
	}
	c.block.Reset()
	for _, f := range c.link.header() {
		_ = c.encoder.WriteField(f) // a buffer does not fail
	}
	return slices.Clone(c.block.Bytes())
}

// field stores a field of an answer's header or trailer.
func (c *h2Conn) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		c.answer.status = f.Value
	case "grpc-encoding":
		c.answer.packed = f.Value
	case "grpc-status":
		c.answer.code = f.Value
	case "grpc-message":
		c.answer.text = f.Value
	}
}

// hangUp closes a connection that cannot be used again, and ends its call.
func (c *h2Conn) hangUp() {
	c.lazyConn.hangUp()
	c.stream = 0
}

// Do makes one call, or sends one request of a stream.
func (c *h2Conn) Do(ctx context.Context, m *Message, x *Exchange) error {
	c.use.Lock()
	defer c.use.Unlock()
	x.begin()
	if c.conn != nil && x.Start-c.last > pollIdleAfter {
		c.pollIdle()
	}
	err := c.exchange(ctx, m, x)
	if errors.Is(err, errRefused) {
		// The server has not begun this call, so it may be repeated.
		c.hangUp()
		err = c.exchange(ctx, m, x)
	}
	c.last = Now()
	var answer *status.Status
	if s, ok := status.FromError(err); ok {
		answer = s
	}
	switch {
	case err != nil && answer == nil:
		c.hangUp() // the connection is broken
	case c.leaving:
		c.leave()
	}
	x.Done = Now()
	return err
}

func (c *h2Conn) exchange(ctx context.Context, m *Message, x *Exchange) error {
	if c.conn != nil && c.stream == 0 && c.lastID >= maxStreamID && c.lastID != noStream {
		c.hangUp() // the connection has used up its stream numbers
	}
	if c.conn == nil {
		if err := c.Connect(ctx); err != nil {
			return err
		}
	}
	stream := c.link.options.Stream
	if c.stream == 0 {
		c.open()
		c.answer.reset()
	}
	c.answer.message, c.answer.keep = c.answer.message[:0], x.Keep || stream
	c.answer.whole, c.answer.arrived = false, false
	if err := c.sendMessage(m, x.Sequence, !stream); err != nil {
		return err
	}
	x.Sent = Now()
	if stream {
		return c.converse(x)
	}
	for !c.answer.ended {
		if err := c.receive(x); err != nil {
			return err
		}
	}
	c.stream = 0
	if err := c.verdict(); err != nil || !x.Keep {
		return err
	}
	content, err := c.answer.content()
	x.Answer = append(x.Answer, content...)
	return err
}

// converse reads the answers to one request of a stream.
func (c *h2Conn) converse(x *Exchange) error {
	for {
		for !c.answer.whole && !c.answer.ended {
			if err := c.receive(x); err != nil {
				return err
			}
		}
		if !c.answer.whole { // the stream ended too early
			c.stream = 0
			if err := c.verdict(); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "the server ended the stream")
		}
		content, err := c.answer.content()
		if err != nil {
			return err
		}
		a, inner, err := client.ParseStreamAnswer(content)
		if err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
		if a.Fault != "" {
			return status.Error(codes.Unknown, a.Fault)
		}
		if !a.Empty {
			x.Arrivals = append(x.Arrivals, Now())
			if x.Arrived != nil {
				x.Arrived()
			}
			if x.Keep {
				x.Answer = append(x.Answer[:0], inner...)
			}
		}
		if !c.link.options.Decoupled || a.Final {
			return nil
		}
		c.answer.whole, c.answer.message = false, c.answer.message[:0]
	}
}

// verdict returns the error of a call that has ended, nil for a good answer.
func (c *h2Conn) verdict() error {
	a := &c.answer
	if a.status != "200" {
		return fmt.Errorf("%w: HTTP status %q to a call", errProtocol, a.status)
	}
	code, err := strconv.ParseUint(a.code, 10, 32)
	switch {
	case err != nil:
		return fmt.Errorf("%w: grpc-status is %q", errProtocol, a.code)
	case code != 0:
		text, err := url.PathUnescape(a.text)
		if err != nil {
			text = a.text
		}
		return status.Error(codes.Code(code), text)
	case a.left > 0 || a.have > 0 && a.have < prefixSize:
		return fmt.Errorf("%w: a message is cut short", errProtocol)
	}
	return nil
}

var errGone = errors.New("the server closed the connection")

// errRefused is wrapped by errors of calls that the server did not begin
// because it is closing the connection.
var errRefused = errors.New("the call was not begun")
