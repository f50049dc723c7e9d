package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	inferPath  = "/inference.GRPCInferenceService/ModelInfer"
	streamPath = "/inference.GRPCInferenceService/ModelStreamInfer"
	prefixSize = 5 // of a gRPC message
	// readFrame is the largest frame that a server may send us.
	readFrame = 16 << 10
)

// errClosed says that the server has ended the connection with GOAWAY.
var errClosed = errors.New("GOAWAY")

// An h2 is a gRPC connection by hand. Frames are collected until flush.
type h2 struct {
	*wire
	out    bytes.Buffer
	framer *http2.Framer // writes to out, reads from the connection
	block  bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32 // the next stream
}

// open connects and sends the preface with the settings.
func open(ctx context.Context, t Target, tally *Tally, settings ...http2.Setting) (*h2, error) {
	w, err := dial(ctx, t.GRPC, tally)
	if err != nil {
		return nil, err
	}
	c := &h2{wire: w, next: 1}
	c.framer = http2.NewFramer(&c.out, w)
	c.framer.AllowIllegalWrites = true
	c.framer.SetMaxReadFrameSize(1 << 20)
	c.hpack = hpack.NewEncoder(&c.block)
	c.out.WriteString(http2.ClientPreface)
	if err := errors.Join(c.framer.WriteSettings(settings...), c.framer.WriteSettingsAck(), c.flush()); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// flush sends what was collected.
func (c *h2) flush() error {
	_, err := c.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

// fields returns the header block of a call.
func (c *h2) fields(path string, extra ...hpack.HeaderField) []byte {
	c.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "attack"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, extra...) {
		if err := c.hpack.WriteField(f); err != nil {
			panic("BUG: a bytes.Buffer refused to grow: " + err.Error())
		}
	}
	return c.block.Bytes()
}

// call opens a stream and returns its id. Errors are those of flush.
func (c *h2) call(path string, extra ...hpack.HeaderField) uint32 {
	id := c.next
	c.next += 2
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields(path, extra...), EndHeaders: true})
	return id
}

// prefix returns the first bytes of a gRPC message of n bytes.
func prefix(n int, packed bool) []byte {
	b := make([]byte, prefixSize)
	if packed {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	return b
}

// send sends a whole message on a stream, in frames of 16 KiB. It does not look
// at the server's window: what is beyond it is the server's to refuse.
func (c *h2) send(id uint32, message []byte, packed, end bool) error {
	c.framer.WriteData(id, false, prefix(len(message), packed))
	for {
		n := min(len(message), readFrame)
		last := n == len(message)
		c.framer.WriteData(id, last && end, message[:n])
		message = message[n:]
		if last || c.out.Len() >= turn {
			if err := c.flush(); err != nil || last {
				return err
			}
		}
	}
}

// drain reads frames until the server ends the connection, and gives each to
// see, which may be nil.
func (c *h2) drain(see func(http2.Frame) bool) error {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			var stream http2.StreamError
			if errors.As(err, &stream) {
				continue
			}
			return err
		}
		if _, ok := f.(*http2.GoAwayFrame); ok {
			return errClosed
		}
		if see != nil && see(f) {
			return nil
		}
	}
}

// answers reads until so many streams have ended.
func (c *h2) answers(n int) error {
	return c.drain(func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			n--
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				n--
			}
		}
		return n <= 0
	})
}

// background reads frames beside the sender; the channel gets why it ended.
func (c *h2) background(see func(http2.Frame) bool) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.drain(see) }()
	return done
}
