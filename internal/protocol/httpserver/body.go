package httpserver

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"shoal/internal/inflight"
	"shoal/internal/status"
)

// A SizeError returns the error for n bytes that exceed limit.
type SizeError func(n, limit int64) error

// A Body is a request's body, or an answer, in pooled memory that counts against
// the memory budget.
type Body struct {
	B      []byte
	buf    *[]byte // what B is a part of, nil when there is none
	align  int     // the byte of B that begins a cache line if there is room
	memory *inflight.Pool
	holds  *atomic.Int64 // what its connection holds; nil for a body of our own
}

var bodies = sync.Pool{New: func() any { return new(Body) }}

// NewBody returns an empty body, which takes its memory from the pool.
func NewBody(memory *inflight.Pool) *Body {
	p := bodies.Get().(*Body)
	p.memory = memory
	return p
}

// Release gives the memory back.
func (p *Body) Release() {
	if p.buf != nil {
		p.memory.Put(p.buf)
	}
	*p = Body{}
	bodies.Put(p)
}

const (
	// firstRead is the most memory that a body gets before its bytes arrive.
	// After that it gets growth times as much as has arrived.
	firstRead = 16 << 10
	growth    = 4
	// maxChunks bounds the chunks of a body.
	maxChunks = 1 << 16
	// The rest of a body that a handler did not read is read, up to these
	// limits, so that the connection can be reused.
	maxDrain = 16 << 20
	drainFor = 500 * time.Millisecond
)

// Receive reads the client's body. Memory grows with what arrives, not with
// what the client announces. A body of more than limit bytes is not read and
// returns tooLarge's error, with the known size and the limit. A body that does
// not fit the memory budget fails too.
func (x *Exchange) Receive(limit int64, tooLarge SizeError) (*Body, error) {
	return x.ReceiveAligned(0, limit, tooLarge)
}

// ReceiveAligned is Receive for a body whose content from the n-th byte on is
// used in place: that byte begins a cache line if the memory has room for it.
func (x *Exchange) ReceiveAligned(n int, limit int64, tooLarge SizeError) (*Body, error) {
	c := x.conn
	p := NewBody(c.server.opt.Memory)
	p.holds, p.align = &c.holds, max(n, 0)
	length, err := x.Header.ContentLength(), error(nil)
	switch {
	case x.body.done: // there is none, or it was read
	case length < 0:
		length = math.MaxInt // in chunks: unknown
	case int64(length) > limit:
		err = tooLarge(int64(length), limit)
	default:
		err = p.memory.Budget().Check(int64(length))
	}
	if err == nil && !x.body.done {
		err = p.readAll(&x.body, length, limit, tooLarge)
	}
	if err != nil {
		p.Release()
		return nil, bodyError(err)
	}
	c.unread = false
	c.holds.Store(0)         // from here on the server waits for the model
	if x.Header.IsHTTP11() { // HTTP/1.0 has no interim responses
		c.half.wait()
	}
	return p, nil
}

// readAll reads r, which has up to length bytes, to its end. It returns
// tooLarge's error after limit bytes.
func (p *Body) readAll(r io.Reader, length int, limit int64, tooLarge SizeError) error {
	for {
		if len(p.B) == cap(p.B) {
			if err := p.growTo(length); err != nil {
				return err
			}
		}
		got, err := r.Read(p.B[len(p.B):cap(p.B)])
		p.B = p.B[:len(p.B)+got]
		switch n := int64(len(p.B)); {
		case n > limit:
			return tooLarge(n, limit)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// growTo moves a body of up to length bytes, of which some have arrived, to
// more memory: to all that it will need if such memory is idle, and otherwise
// to an amount in proportion to what has arrived.
func (p *Body) growTo(length int) error {
	if len(p.B) > 0 {
		if buf := p.memory.Reuse(length, p.held()); buf != nil {
			p.move(buf)
			return nil
		}
	}
	return p.Grow(min(length, max(firstRead, growth*len(p.B))))
}

// Grow moves the body to memory of at least n bytes.
func (p *Body) Grow(n int) error {
	if p.holds != nil {
		p.holds.Store(0) // the server waits for memory, not for the client
	}
	buf, err := p.memory.Claim(n, p.held())
	if err != nil {
		return err
	}
	p.move(buf)
	return nil
}

// move moves the body to buf.
func (p *Body) move(buf *[]byte) {
	room := (*buf)[:cap(*buf)]
	if at := p.shift(room); at <= cap(*buf)-len(*buf) {
		room = room[at:]
	}
	next := room[:copy(room, p.B)]
	if p.buf != nil {
		p.memory.Put(p.buf)
	}
	p.B, p.buf = next, buf
	if p.holds != nil {
		p.holds.Store(p.held())
	}
}

// held returns the memory that the body has.
func (p *Body) held() int64 {
	if p.buf == nil {
		return 0
	}
	return int64(cap(*p.buf))
}

// shift returns where in memory the body has to begin for its alignment.
func (p *Body) shift(memory []byte) int {
	const line = 64
	at := uintptr(unsafe.Pointer(unsafe.SliceData(memory))) + uintptr(p.align)
	return int(-at % line)
}

// bodyError returns the client's error for a failed read.
func bodyError(err error) error {
	switch {
	case isTimeout(err):
		return errBodySlow
	case errors.As(err, new(*status.Error)), errors.As(err, new(*Error)):
		return err
	}
	return errBodyCut
}

// drain reads the rest of a body that the dialect did not read. It reports
// whether all of it is read, so that another request can follow.
func (x *Exchange) drain() bool {
	if x.body.err != nil || x.body.left > maxDrain {
		return false
	}
	x.conn.phase = phaseDrain
	x.conn.readUntil(time.Now().Add(drainFor))
	n, err := io.Copy(io.Discard, io.LimitReader(&x.body, maxDrain))
	return err == nil && n < maxDrain
}
