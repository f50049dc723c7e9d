package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxFrame is the largest frame that is taken, which is what we did not ask to be
// changed.
const maxFrame = defaultFrame

// receive reads one frame and acts on it.
func (c *h2Conn) receive(x *Exchange) error {
	if err := c.fill(frameHeaderSize); err != nil {
		return err
	}
	h := c.in[c.from:c.to]
	length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	kind, flags := h[3], h[4]
	stream := binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)
	if bytes.HasPrefix(h, []byte("HTTP/1")) {
		return fmt.Errorf("%w: the server speaks HTTP/1.1; is this its gRPC port?", errProtocol)
	}
	if length > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", errProtocol, length)
	}
	if err := c.fill(frameHeaderSize + length); err != nil {
		return err
	}
	payload := c.in[c.from+frameHeaderSize : c.from+frameHeaderSize+length]
	c.from += frameHeaderSize + length
	err := c.act(kind, flags, stream, payload)
	if x != nil && x.First == 0 && c.answer.arrived {
		x.First = Now()
	}
	return err
}

// fill reads until n bytes are there to look at. Before it waits it writes what
// waits itself: acknowledgements go out with the next request unless there is
// time.
func (c *h2Conn) fill(n int) error {
	for c.to-c.from < n {
		rest, to := c.in[c.from:c.to], c.in
		if c.to == len(c.in) && len(c.in) < readBuffer {
			to = make([]byte, readBuffer) // large answers: fewer reads
		}
		c.from, c.to, c.in = 0, copy(to, rest), to
		if err := c.flush(); err != nil {
			return err
		}
		got, err := c.conn.Read(c.in[c.to:])
		c.to += got
		if got == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: %w", errGone, io.ErrUnexpectedEOF)
			}
			return err
		}
	}
	return nil
}

// act does what a frame asks for.
func (c *h2Conn) act(kind, flags byte, stream uint32, p []byte) error {
	switch kind {
	case frameData:
		return c.takeData(flags, stream, p)
	case frameHeaders:
		block, err := unpad(flags, p)
		if err == nil && flags&flagPriority != 0 {
			if len(block) < 5 {
				return fmt.Errorf("%w: a header frame of %d bytes", errProtocol, len(p))
			}
			block = block[5:]
		}
		if err != nil {
			return err
		}
		c.answer.header = append(c.answer.header[:0], block...)
		return c.takeHeader(flags, stream, flags&flagEndStream != 0)
	case frameContinuation:
		c.answer.header = append(c.answer.header, p...)
		if len(c.answer.header) > maxHead {
			return fmt.Errorf("%w: a header of more than %d bytes", errProtocol, maxHead)
		}
		return c.takeHeader(flags, stream, c.answer.ends)
	case frameReset:
		return c.takeReset(stream, p)
	case frameSettings:
		return c.takeSettings(flags, p)
	case framePing:
		if flags&flagAck == 0 && len(p) == 8 {
			c.out = appendFrame(c.out, len(p), framePing, flagAck, 0)
			c.out = append(c.out, p...)
		}
	case frameGoAway:
		c.leaving = true
		if len(p) >= 8 && c.stream != 0 && binary.BigEndian.Uint32(p)&^(1<<31) < c.stream {
			return fmt.Errorf("%w: %w: it takes no more calls (code %d)", errGone, errRefused, binary.BigEndian.Uint32(p[4:]))
		}
	case frameWindowUpdate:
		return c.takeWindow(stream, p)
	}
	return nil // what is not known is passed over
}

// takeHeader decodes a header that is whole. Others than the call at hand's are
// decoded as well: the table must stay in step.
func (c *h2Conn) takeHeader(flags byte, stream uint32, ends bool) error {
	c.answer.ends = ends
	if flags&flagEndHeaders == 0 {
		return nil
	}
	ours := stream == c.stream && stream != 0
	c.decoder.SetEmitEnabled(ours)
	_, err := c.decoder.Write(c.answer.header)
	if err == nil {
		err = c.decoder.Close()
	}
	if err != nil {
		return fmt.Errorf("%w: a header that cannot be decoded: %w", errProtocol, err)
	}
	if ours {
		c.answer.arrived, c.answer.ended = true, ends
	}
	return nil
}

// takeData takes a part of an answer, and gives the server leave to send more
// when half of what it had is used.
func (c *h2Conn) takeData(flags byte, stream uint32, p []byte) error {
	if c.received += int64(len(p)); c.received > maxWindow/2 {
		c.out = appendWindowUpdate(c.out, 0, uint32(c.received))
		c.received = 0
	}
	if stream != c.stream || stream == 0 {
		return nil // the rest of a call that was reset
	}
	if c.streamed += int64(len(p)); c.streamed > maxWindow/2 {
		c.out = appendWindowUpdate(c.out, stream, uint32(c.streamed))
		c.streamed = 0
	}
	data, err := unpad(flags, p)
	if err != nil {
		return err
	}
	c.answer.arrived = true
	if err := c.answer.take(data); err != nil {
		return err
	}
	c.answer.ended = flags&flagEndStream != 0
	return nil
}

// take adds bytes of messages. One message is there at a time: it must be used
// before the next one begins.
func (a *h2Answer) take(data []byte) error {
	for len(data) > 0 {
		if a.left == 0 {
			if a.whole && a.keep {
				return fmt.Errorf("%w: an answer that nobody asked for", errProtocol)
			}
			n := copy(a.prefix[a.have:], data)
			data = data[n:]
			if a.have += n; a.have < prefixSize {
				return nil
			}
			a.have = 0
			a.left = int64(binary.BigEndian.Uint32(a.prefix[1:]))
			a.whole = a.left == 0
			continue
		}
		n := min(a.left, int64(len(data)))
		if a.keep {
			a.message = append(a.message, data[:n]...)
		}
		data = data[n:]
		if a.left -= n; a.left == 0 {
			a.whole = true
		}
	}
	return nil
}

func (c *h2Conn) takeReset(stream uint32, p []byte) error {
	if stream != c.stream || stream == 0 || len(p) < 4 {
		return nil
	}
	if c.answer.ended { // "no error": the server needs no more of the request
		return nil
	}
	c.stream = 0
	return status.Errorf(codes.Unavailable, "the server reset the call (code %d)", binary.BigEndian.Uint32(p))
}

func (c *h2Conn) takeSettings(flags byte, p []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	for ; len(p) >= 6; p = p[6:] {
		value := binary.BigEndian.Uint32(p[2:])
		switch binary.BigEndian.Uint16(p) {
		case settingTable:
			if value < tableSize {
				c.first, c.later = nil, c.encode(0)
			}
		case settingInitialWindow:
			if value > maxWindow {
				return fmt.Errorf("%w: a window of %d", errProtocol, value)
			}
			c.streamWin += int64(value) - c.initial // of the call at hand, too
			c.initial = int64(value)
		case settingMaxFrame:
			if value >= defaultFrame && value < 1<<24 {
				c.frame = int(value)
			}
		}
	}
	c.out = appendFrame(c.out, 0, frameSettings, flagAck, 0)
	return nil
}

func (c *h2Conn) takeWindow(stream uint32, p []byte) error {
	if len(p) < 4 {
		return fmt.Errorf("%w: a window update of %d bytes", errProtocol, len(p))
	}
	by := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	switch stream {
	case 0:
		c.window += by
	case c.stream:
		c.streamWin += by
	}
	return nil
}

// unpad takes the padding off a frame.
func unpad(flags byte, p []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, fmt.Errorf("%w: more padding than frame", errProtocol)
	}
	return p[1 : len(p)-int(p[0])], nil
}
