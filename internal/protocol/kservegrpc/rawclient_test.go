package kservegrpc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A rawClient makes one unary call at a time over HTTP/2 by hand, without
// allocating, so that what a test counts is the server's. It heeds the window of
// the connection only: a message must fit into that of a stream.
type rawClient struct {
	conn   net.Conn
	out    *bufio.Writer
	framer *http2.Framer
	header [2][]byte // of the first call, and of the others, which refer to it
	stream uint32
	window int // what the server still lets us send on the connection
	unread int // what we have received and not acknowledged
}

func newRawClient(tb testing.TB, addr net.Addr, method string, more ...hpack.HeaderField) *rawClient {
	tb.Helper()
	conn, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	c := &rawClient{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), stream: 1, window: 65535}
	c.framer = http2.NewFramer(c.out, bufio.NewReaderSize(conn, 64<<10))
	c.framer.SetReuseFrames()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := range c.header {
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "test"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				tb.Fatal(err)
			}
		}
		for _, f := range more {
			if err := enc.WriteField(f); err != nil {
				tb.Fatal(err)
			}
		}
		c.header[i] = bytes.Clone(block.Bytes())
		block.Reset()
	}
	for _, err := range []error{
		func() error { _, err := io.WriteString(c.out, http2.ClientPreface); return err }(),
		c.framer.WriteSettings(),
		c.framer.WriteWindowUpdate(0, 1<<30),
		c.out.Flush(),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// frame puts grpc's prefix before a message.
func frame(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
}

// call sends a framed message and returns the bytes of the answer.
func (c *rawClient) call(msg []byte) (int, error) {
	if err := c.send(msg); err != nil {
		return 0, err
	}
	total := 0
	for {
		n, end, err := c.read()
		if total += n; err != nil || end {
			return total, err
		}
	}
}

// send begins a call with a framed message.
func (c *rawClient) send(msg []byte) error {
	id := c.stream
	c.stream += 2
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.header[min(id/2, 1)], EndHeaders: true}); err != nil {
		return err
	}
	for {
		for c.window < min(len(msg), 16384) {
			if _, _, err := c.read(); err != nil {
				return err
			}
		}
		n := min(len(msg), 16384)
		c.window -= n
		end := n == len(msg)
		if err := c.framer.WriteData(id, end, msg[:n]); err != nil {
			return err
		}
		if msg = msg[n:]; end {
			break
		}
	}
	return c.out.Flush()
}

// read handles one frame and returns the bytes of data in it, and whether it
// ends the call.
func (c *rawClient) read() (int, bool, error) {
	if err := c.out.Flush(); err != nil {
		return 0, false, err
	}
	f, err := c.framer.ReadFrame()
	if err != nil {
		return 0, false, err
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return 0, false, c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return 0, false, c.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.window += int(f.Increment)
		}
	case *http2.HeadersFrame:
		return 0, f.StreamEnded(), nil
	case *http2.RSTStreamFrame, *http2.GoAwayFrame:
		return 0, false, io.ErrUnexpectedEOF
	case *http2.DataFrame:
		n := len(f.Data())
		if c.unread += n; c.unread > 1<<20 {
			if err := c.framer.WriteWindowUpdate(0, uint32(c.unread)); err != nil {
				return 0, false, err
			}
			c.unread = 0
		}
		return n, f.StreamEnded(), nil
	}
	return 0, false, nil
}
