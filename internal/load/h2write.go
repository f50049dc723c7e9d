package load

import (
	"encoding/binary"

	"golang.org/x/net/http2"
	"shoal/internal/client"
	"shoal/internal/protocol/h2"
)

// open begins a call: its header goes out with its first message.
func (c *h2Conn) open() {
	header := c.later
	if c.first != nil {
		header, c.first = c.first, nil
	}
	c.lastID += 2
	c.stream, c.streamWin, c.streamed = c.lastID, c.initial, 0
	c.out = h2.AppendHeader(c.out, len(header), http2.FrameHeaders, http2.FlagHeadersEndHeaders, c.stream)
	c.out = append(c.out, header...)
}

// sendMessage writes a message, with its sequence in front if it has one: the
// fields of a protobuf message may be in any order.
func (c *h2Conn) sendMessage(m *Message, s client.Sequence, last bool) error {
	if s.ID == 0 {
		if err := c.send(m.wire, last); err != nil {
			return err
		}
		return c.flush()
	}
	if m.plain != nil { // a sequence cannot be put in front of a compressed message
		whole, err := c.link.Message(append(s.AppendProto(nil), m.plain...))
		if err == nil {
			err = c.send(whole.wire, last)
		}
		if err != nil {
			return err
		}
		return c.flush()
	}
	c.head = s.AppendProto(append(c.head[:0], m.wire[:prefixSize]...))
	binary.BigEndian.PutUint32(c.head[1:], uint32(len(c.head)+len(m.wire)-2*prefixSize))
	if err := c.send(c.head, false); err != nil {
		return err
	}
	if err := c.send(m.wire[prefixSize:], last); err != nil {
		return err
	}
	return c.flush()
}

// send splits a message into frames, waits for window updates where needed, and
// writes most of the frames.
func (c *h2Conn) send(b []byte, last bool) error {
	for len(b) > 0 {
		n := int(min(int64(len(b)), int64(c.frame), c.window, c.streamWin))
		if n <= 0 {
			if err := c.receive(nil); err != nil {
				return err
			}
			if c.answer.ended { // the server has answered early
				c.out = h2.AppendNumber(c.out, http2.FrameRSTStream, c.stream, uint32(http2.ErrCodeCancel))
				return nil
			}
			continue
		}
		var flags http2.Flags
		if last && n == len(b) {
			flags = http2.FlagDataEndStream
		}
		c.out = h2.AppendHeader(c.out, n, http2.FrameData, flags, c.stream)
		c.out = append(c.out, b[:n]...)
		c.window -= int64(n)
		c.streamWin -= int64(n)
		b = b[n:]
		if len(c.out) >= writeSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSize is how much is collected for one write.
const writeSize = 256 << 10

// flush writes the pending frames.
func (c *h2Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}
