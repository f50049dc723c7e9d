package kservehttp

import (
	"io"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// A sizeError says that n bytes are more than limit.
type sizeError func(n, limit int64) error

// A body is a request's body, or an answer, in pooled memory that counts against
// the memory budget.
type body struct {
	b      []byte
	buf    *[]byte // what b is a part of, nil when there is none
	memory *inflight.Pool
	holds  *atomic.Int64 // what its connection holds; nil for a body of our own
}

var bodies = sync.Pool{New: func() any { return new(body) }}

func newBody(memory *inflight.Pool) *body {
	p := bodies.Get().(*body)
	p.memory = memory
	return p
}

// release gives the memory back.
func (p *body) release() {
	if p.buf != nil {
		p.memory.Put(p.buf)
	}
	*p = body{}
	bodies.Put(p)
}

const (
	// firstRead is the most memory that a body gets before its bytes are there.
	// After that it gets growth times as much as has arrived.
	firstRead = 16 << 10
	growth    = 4
	// maxChunks is how many chunks a body may come in.
	maxChunks = 1 << 16
	// What a handler left of a body is read, up to these, so that the
	// connection can be used again.
	maxDrain = 16 << 20
	drainFor = 500 * time.Millisecond
)

// receive reads the body that a client sends. Memory grows with what arrives,
// not with what the client says will. A body of more than limit bytes is not
// read and gives tooLarge's error, with the bytes that are known of and the
// limit. One that the memory budget has no room for fails, too.
func receive(ctx *fasthttp.RequestCtx, c *conn, limit int64, tooLarge sizeError) (*body, error) {
	p := newBody(c.server.opt.Memory)
	p.holds = &c.holds
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return p, nil
	}
	length := ctx.Request.Header.ContentLength()
	var err error
	if length >= 0 {
		err = p.fixed(stream, int64(length), limit, tooLarge)
	} else {
		err = p.chunked(stream, limit, tooLarge)
	}
	if err != nil {
		p.release()
		return nil, bodyError(err)
	}
	c.unread = false
	c.holds.Store(0)                   // the model is waited for from here on
	if ctx.Request.Header.IsHTTP11() { // else there are no interim responses
		c.half.wait()
	}
	return p, nil
}

func (p *body) fixed(stream io.Reader, length, limit int64, tooLarge sizeError) error {
	if length > limit {
		return tooLarge(length, limit)
	}
	if err := p.memory.Budget().Check(length); err != nil {
		return err
	}
	for int64(len(p.b)) < length {
		if len(p.b) == cap(p.b) {
			if err := p.growTo(int(length)); err != nil {
				return err
			}
		}
		room := p.b[len(p.b):min(int64(cap(p.b)), length)]
		n, err := stream.Read(room)
		p.b = p.b[:len(p.b)+n]
		if err != nil && int64(len(p.b)) < length {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

func (p *body) chunked(stream io.Reader, limit int64, tooLarge sizeError) error {
	chunks := 0
	left, ended := chunkLeft(stream), chunksEnded(stream)
	for {
		if len(p.b) == cap(p.b) {
			if err := p.grow(max(firstRead, growth*len(p.b))); err != nil {
				return err
			}
		}
		n, err := stream.Read(p.b[len(p.b):cap(p.b)])
		p.b = p.b[:len(p.b)+n]
		if n > 0 && left.Int() == 0 {
			chunks++
		}
		switch {
		case int64(len(p.b)) > limit:
			return tooLarge(int64(len(p.b)), limit)
		case chunks > maxChunks:
			return status.Rejectf(reject.TooLarge, status.InvalidArgument,
				"Chunked request body exceeds maximum of %d non-empty chunks. Send fewer or larger HTTP chunks.", maxChunks)
		case err == io.EOF && ended.Bool():
			return nil
		case err == io.EOF: // the client left before the last chunk
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// growTo moves a body of length bytes, of which some have arrived, to more
// memory: to all that it will need where such memory is idle, and else to as
// much as what has arrived warrants.
func (p *body) growTo(length int) error {
	if len(p.b) > 0 {
		if buf := p.memory.Reuse(length, int64(cap(p.b))); buf != nil {
			p.move(buf)
			return nil
		}
	}
	return p.grow(min(length, max(firstRead, growth*len(p.b))))
}

// grow moves the body to memory of at least n bytes.
func (p *body) grow(n int) error {
	if p.holds != nil {
		p.holds.Store(0) // while memory is waited for, the client is not
	}
	buf, err := p.memory.Claim(n, int64(cap(p.b)))
	if err != nil {
		return err
	}
	p.move(buf)
	return nil
}

// move moves the body to buf.
func (p *body) move(buf *[]byte) {
	next := (*buf)[:copy(*buf, p.b)]
	if p.buf != nil {
		p.memory.Put(p.buf)
	}
	p.b, p.buf = next, buf
	if p.holds != nil {
		p.holds.Store(int64(cap(next)))
	}
}

// chunkLeft returns fasthttp's count of bytes that the current chunk still has.
// There is no other way to tell where a chunk ends without reading the
// connection ourselves; a test makes sure that it is there.
func chunkLeft(stream io.Reader) reflect.Value {
	return reflect.ValueOf(stream).Elem().FieldByName("chunkLeft")
}

// chunksEnded returns fasthttp's note that the last chunk was read. Its stream
// ends in the same way when the client closes the connection before that.
func chunksEnded(stream io.Reader) reflect.Value {
	return reflect.ValueOf(stream).Elem().FieldByName("eof")
}

// bodyError puts a failure to read into words for the client.
func bodyError(err error) error {
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return &httpError{status: 408, reason: reject.Timeout, text: "the request's body did not arrive in time; send it faster or raise --http-body-timeout-secs"}
	}
	switch err.(type) {
	case *status.Error, *httpError:
		return err
	}
	return &httpError{status: 400, reason: reject.Malformed, text: "the request's body is cut short or not in valid chunks"}
}

// drain reads what the handler has left of a body. It reports whether all of
// it is read, so that another request can follow.
func drain(ctx *fasthttp.RequestCtx, c *conn) bool {
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return true
	}
	if n := ctx.Request.Header.ContentLength(); n > maxDrain {
		return false
	}
	c.phase = phaseDrain
	c.readUntil(time.Now().Add(drainFor))
	n, err := io.Copy(io.Discard, io.LimitReader(stream, maxDrain))
	return err == nil && n < maxDrain
}
