package grpcserver

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"shoal/internal/inflight"
)

// An input reads a connection through a buffer. Reads into the caller's memory
// skip the buffer where that saves a copy. It belongs to the goroutine that
// reads.
type input struct {
	conn   net.Conn
	budget *inflight.Budget // what a buffer that has grown counts against
	buf    []byte
	r, w   int // buf[r:w] is unread
	// last is when something was last read, for keepalive, and total how much
	// was read.
	last, total atomic.Int64

	// What the reading goroutine waits for: a number of frames, and in the
	// lower bits one of the constants below.
	waiting atomic.Uint64
	kind    uint64 // what is being read
	begun   uint64 // counts headers and other frames
}

// What is being read.
const (
	readerBusy    = iota // the reader does not wait
	readerIdle           // a new frame
	readerHeader         // the rest of a header, or of a frame's header
	readerPayload        // the rest of another frame
	readerMask    = 3
)

// begin marks the beginning of a frame that is not part of a header.
func (in *input) begin() {
	in.kind = readerIdle
	in.begun++
}

// read is conn.Read; other goroutines can see what it waits for.
func (in *input) read(b []byte) (int, error) {
	kind := in.kind
	if kind == readerIdle && in.w > in.r {
		kind = readerHeader
	}
	in.waiting.Store(in.begun<<2 | kind)
	n, err := in.conn.Read(b)
	in.waiting.Store(readerBusy)
	in.total.Add(int64(n))
	in.last.Store(time.Now().UnixNano())
	return n, err
}

// inputSize holds several frames of the usual 16 KB, so that a large message
// takes few system calls.
const inputSize = 64 << 10

// directSize is how much must be missing to be read past the buffer.
const directSize = 32 << 10

// smallInput is the initial size of a buffer: many connections never send more.
const smallInput = 4 << 10

func (in *input) init(conn net.Conn, budget *inflight.Budget) {
	in.conn, in.buf, in.budget = conn, make([]byte, smallInput), budget
	in.last.Store(time.Now().UnixNano())
}

// extra returns by how much the buffer has grown.
func (in *input) extra() int { return max(len(in.buf)-smallInput, 0) }

// buffered returns how much can be taken without a system call.
func (in *input) buffered() int { return in.w - in.r }

// peek returns the next n bytes, which must fit into the buffer, without taking
// them.
func (in *input) peek(n int) ([]byte, error) {
	for in.w-in.r < n {
		buf := in.buf
		if len(buf) < inputSize && (n > len(buf) || in.w == len(buf)) {
			in.buf = make([]byte, inputSize) // the client sends more than a little
			in.budget.Force(int64(in.extra()))
		}
		if in.r > 0 || len(buf) < len(in.buf) {
			in.w = copy(in.buf, buf[in.r:in.w])
			in.r = 0
		}
		m, err := in.read(in.buf[in.w:])
		if m == 0 && err != nil {
			return nil, err
		}
		in.w += m
	}
	return in.buf[in.r : in.r+n], nil
}

// skip takes n bytes that were peeked at.
func (in *input) skip(n int) { in.r += n }

// take is peek and skip. Its result is valid until the next call.
func (in *input) take(n int) ([]byte, error) {
	b, err := in.peek(n)
	if err == nil {
		in.skip(n)
	}
	return b, err
}

// fill reads exactly len(dst) bytes into dst.
func (in *input) fill(dst []byte) error {
	n := copy(dst, in.buf[in.r:in.w])
	in.r += n
	for dst = dst[n:]; len(dst) >= directSize; dst = dst[n:] {
		var err error
		if n, err = in.read(dst); n == 0 && err != nil {
			return err
		}
	}
	for len(dst) > 0 {
		if _, err := in.peek(1); err != nil {
			return err
		}
		n := copy(dst, in.buf[in.r:in.w])
		in.r += n
		dst = dst[n:]
	}
	return nil
}

// discard skips n bytes.
func (in *input) discard(n int) error {
	for n > 0 {
		if _, err := in.peek(1); err != nil {
			return err
		}
		m := min(n, in.buffered())
		in.skip(m)
		n -= m
	}
	return nil
}

// drain reads until the peer hangs up or the deadline has passed.
func (in *input) drain() {
	_, _ = io.Copy(io.Discard, in.conn)
}
