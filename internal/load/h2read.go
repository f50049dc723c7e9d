package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"shoal/internal/protocol/h2"
)

// maxFrame is the largest frame that we accept: the default, which we do not
// change.
const maxFrame = h2.MinMaxFrame

// receive reads one frame and acts on it.
func (c *h2Conn) receive(x *Exchange) error {
	if err := c.fill(h2.HeaderLen); err != nil {
		return err
	}
	start := c.in[c.from:c.to]
	h := h2.ParseHeader(start)
	if bytes.HasPrefix(start, []byte("HTTP/1")) {
		return fmt.Errorf("%w: the server speaks HTTP/1.1; is this its gRPC port?", errProtocol)
	}
	if h.Length > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", errProtocol, h.Length)
	}
	size := h2.HeaderLen + h.Length
	if err := c.fill(size); err != nil {
		return err
	}
	payload := c.in[c.from+h2.HeaderLen : c.from+size]
	c.from += size
	err := c.act(h, payload)
	if x != nil && x.First == 0 && c.answer.arrived {
		x.First = Now()
	}
	return err
}

// fill reads until n bytes can be parsed. Before it blocks, it writes its own
// pending frames: otherwise acknowledgements go out with the next request.
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

// act handles a frame.
func (c *h2Conn) act(h h2.Header, p []byte) error {
	switch h.Kind {
	case http2.FrameData:
		return c.takeData(h, p)
	case http2.FrameHeaders:
		block, ok := h2.Unpad(h, p)
		if !ok {
			return errPadding
		}
		if h.Flags.Has(http2.FlagHeadersPriority) {
			if len(block) < h2.PriorityLen {
				return fmt.Errorf("%w: a header frame of %d bytes", errProtocol, len(p))
			}
			block = block[h2.PriorityLen:]
		}
		c.answer.header = append(c.answer.header[:0], block...)
		return c.takeHeader(h, h.Flags.Has(http2.FlagHeadersEndStream))
	case http2.FrameContinuation:
		c.answer.header = append(c.answer.header, p...)
		if len(c.answer.header) > maxHead {
			return fmt.Errorf("%w: a header of more than %d bytes", errProtocol, maxHead)
		}
		return c.takeHeader(h, c.answer.ends)
	case http2.FrameRSTStream:
		return c.takeReset(h.Stream, p)
	case http2.FrameSettings:
		return c.takeSettings(h, p)
	case http2.FramePing:
		if !h.Flags.Has(http2.FlagPingAck) && len(p) == h2.PingLen {
			c.out = h2.AppendPing(c.out, http2.FlagPingAck, [h2.PingLen]byte(p))
		}
	case http2.FrameGoAway:
		c.leaving = true
		if len(p) >= 8 && c.stream != 0 && binary.BigEndian.Uint32(p)&^(1<<31) < c.stream {
			return fmt.Errorf("%w: %w: it takes no more calls (code %d)", errGone, errRefused, binary.BigEndian.Uint32(p[4:]))
		}
	case http2.FrameWindowUpdate:
		return c.takeWindow(h.Stream, p)
	}
	return nil // unknown frames are ignored
}

// takeHeader decodes a complete header. It also decodes headers of other calls,
// to keep the HPACK table in step.
func (c *h2Conn) takeHeader(h h2.Header, ends bool) error {
	c.answer.ends = ends
	if !h.Flags.Has(http2.FlagHeadersEndHeaders) {
		return nil
	}
	ours := h.Stream == c.stream && h.Stream != 0
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

// takeData handles a part of an answer. It sends a window update when half of
// the window is used.
func (c *h2Conn) takeData(h h2.Header, p []byte) error {
	if c.received += int64(len(p)); c.received > h2.MaxWindow/2 {
		c.out = h2.AppendNumber(c.out, http2.FrameWindowUpdate, 0, uint32(c.received))
		c.received = 0
	}
	if h.Stream != c.stream || h.Stream == 0 {
		return nil // the rest of a call that was reset
	}
	if c.streamed += int64(len(p)); c.streamed > h2.MaxWindow/2 {
		c.out = h2.AppendNumber(c.out, http2.FrameWindowUpdate, h.Stream, uint32(c.streamed))
		c.streamed = 0
	}
	data, ok := h2.Unpad(h, p)
	if !ok {
		return errPadding
	}
	c.answer.arrived = true
	if err := c.answer.take(data); err != nil {
		return err
	}
	c.answer.ended = h.Flags.Has(http2.FlagDataEndStream)
	return nil
}

// take adds bytes of messages. It holds one message at a time, which must be
// used before the next begins.
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
	if c.answer.ended { // NO_ERROR: the server needs no more of the request
		return nil
	}
	c.stream = 0
	return status.Errorf(codes.Unavailable, "the server reset the call (code %d)", binary.BigEndian.Uint32(p))
}

func (c *h2Conn) takeSettings(h h2.Header, p []byte) error {
	if h.Flags.Has(http2.FlagSettingsAck) {
		return nil
	}
	for ; len(p) >= h2.SettingLen; p = p[h2.SettingLen:] {
		value := binary.BigEndian.Uint32(p[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(p)) {
		case http2.SettingHeaderTableSize:
			if value < h2.DefaultTable {
				c.first, c.later = nil, c.encode(0)
			}
		case http2.SettingInitialWindowSize:
			if value > h2.MaxWindow {
				return fmt.Errorf("%w: a window of %d", errProtocol, value)
			}
			c.streamWin += int64(value) - c.initial // also for the current call
			c.initial = int64(value)
		case http2.SettingMaxFrameSize:
			if value >= h2.MinMaxFrame && value <= h2.MaxMaxFrame {
				c.frame = int(value)
			}
		}
	}
	c.out = h2.AppendHeader(c.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
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

var errPadding = fmt.Errorf("%w: more padding than frame", errProtocol)
