package grpcserver

import (
	"encoding/binary"

	"golang.org/x/net/http2"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

// read handles frames until the connection ends, and returns why.
func (c *conn) read() error {
	for {
		if err := c.frame(); err != nil {
			return err
		}
	}
}

// frame handles one frame.
func (c *conn) frame() error {
	if c.headers.stream == 0 {
		c.in.begin()
	}
	b, err := c.in.take(h2.HeaderLen)
	if err != nil {
		return err
	}
	h := h2.ParseHeader(b)
	if h.Length > maxFrame {
		return connError{http2.ErrCodeFrameSize, "a frame is larger than SETTINGS_MAX_FRAME_SIZE"}
	}
	if open := c.headers.stream; open != 0 && (h.Kind != http2.FrameContinuation || h.Stream != open) {
		return connError{http2.ErrCodeProtocol, "a header block is broken off"}
	}
	if err := c.charge(frameCost(h)); err != nil {
		return err
	}
	c.in.kind = readerPayload
	if h.Kind == http2.FrameHeaders || h.Kind == http2.FrameContinuation {
		c.in.kind = readerHeader
	}
	switch h.Kind {
	case http2.FrameData:
		return c.onData(h)
	case http2.FrameHeaders:
		return c.onHeaders(h)
	case http2.FrameContinuation:
		return c.onContinuation(h)
	case http2.FrameRSTStream:
		return c.onReset(h)
	case http2.FrameWindowUpdate:
		return c.onWindowUpdate(h)
	case http2.FrameSettings:
		return c.onSettings(h)
	case http2.FramePing:
		return c.onPing(h)
	case http2.FramePriority:
		return c.onPriority(h)
	case http2.FrameGoAway:
		return c.onGoAway(h)
	case http2.FramePushPromise:
		return connError{http2.ErrCodeProtocol, "a client does not push"}
	}
	return c.in.discard(h.Length)
}

// fixed reads the payload of a frame that must have n bytes and belong to a
// stream, or to none.
func (c *conn) fixed(h h2.Header, n int, ofStream bool) ([]byte, error) {
	switch {
	case h.Length != n:
		return nil, connError{http2.ErrCodeFrameSize, h.Kind.String() + " has a wrong length"}
	case ofStream != (h.Stream != 0):
		return nil, connError{http2.ErrCodeProtocol, h.Kind.String() + " for a wrong stream"}
	}
	return c.in.take(n)
}

// lookup returns the call of a stream, nil when it is over.
func (c *conn) lookup(id uint32) *call {
	if s := c.current; s != nil && s.id == id && !s.ended.Load() {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = c.streams[id]
	return c.current
}

// idle reports whether a stream was never opened. Only the reader opens them.
func (c *conn) idle(id uint32) bool { return id%2 == 0 || id > c.lastID }

// reset ends a stream from our side, with the call on it if there is one.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.mu.Lock()
	s := c.streams[id]
	if s != nil {
		c.removeLocked(s)
	} else {
		c.early.add(id)
	}
	c.putLocked(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, id, uint32(code)))
	c.mu.Unlock()
	if s != nil {
		s.cut()
	}
	c.throttle()
}

func (c *conn) onReset(h h2.Header) error {
	if _, err := c.fixed(h, h2.ResetLen, true); err != nil {
		return err
	}
	if c.idle(h.Stream) {
		return connError{http2.ErrCodeProtocol, "RST_STREAM of an idle stream"}
	}
	if s := c.lookup(h.Stream); s != nil {
		c.mu.Lock()
		s.remoteClosed = true
		c.removeLocked(s)
		c.mu.Unlock()
		s.cut()
		c.throttle()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early.remove(h.Stream)
	return nil
}

func (c *conn) onWindowUpdate(h h2.Header) error {
	b, err := c.fixed(h, h2.WindowUpdateLen, h.Stream != 0)
	if err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(b) & h2.MaxWindow)
	if h.Stream == 0 {
		return c.widen(n)
	}
	if c.idle(h.Stream) {
		return connError{http2.ErrCodeProtocol, "WINDOW_UPDATE of an idle stream"}
	}
	s := c.lookup(h.Stream)
	switch {
	case s == nil:
	case n == 0:
		c.reset(h.Stream, http2.ErrCodeProtocol)
	case !c.widenStream(s, n):
		c.reset(h.Stream, http2.ErrCodeFlowControl)
	}
	return nil
}

// widen increases the connection's send window by n bytes.
func (c *conn) widen(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outWindow += n
	switch {
	case n == 0:
		return connError{http2.ErrCodeProtocol, "WINDOW_UPDATE by nothing"}
	case c.outWindow > h2.MaxWindow:
		return connError{http2.ErrCodeFlowControl, "the connection's window is too large"}
	}
	c.nextLocked()
	return nil
}

// widenStream increases a call's send window by n bytes, unless that is too
// much.
func (c *conn) widenStream(s *call, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.widenLocked(s, n)
}

func (c *conn) onPriority(h h2.Header) error {
	if h.Stream == 0 {
		return connError{http2.ErrCodeProtocol, "PRIORITY of no stream"}
	}
	if h.Length != h2.PriorityLen {
		if err := c.in.discard(h.Length); err != nil {
			return err
		}
		c.reset(h.Stream, http2.ErrCodeFrameSize)
		return nil
	}
	b, err := c.in.take(h2.PriorityLen)
	if err == nil && dependsOnItself(b, h.Stream) {
		c.reset(h.Stream, http2.ErrCodeProtocol)
	}
	return err
}

// dependsOnItself reports whether a stream's priority refers to itself.
func dependsOnItself(b []byte, stream uint32) bool {
	return binary.BigEndian.Uint32(b)&h2.MaxWindow == stream
}

func (c *conn) onGoAway(h h2.Header) error {
	if h.Stream != 0 || h.Length < h2.GoAwayLen {
		return connError{http2.ErrCodeProtocol, "GOAWAY is malformed"}
	}
	return c.in.discard(h.Length) // the client will hang up when it is done
}

func (c *conn) onSettings(h h2.Header) error {
	ack := h.Flags.Has(http2.FlagSettingsAck)
	switch {
	case h.Stream != 0:
		return connError{http2.ErrCodeProtocol, "SETTINGS of a stream"}
	case ack && h.Length != 0, h.Length%h2.SettingLen != 0:
		return connError{http2.ErrCodeFrameSize, "SETTINGS has a wrong length"}
	case h.Length > h2.MinMaxFrame:
		c.closedBy(reject.TooMuchWork, "too many settings")
		return connError{http2.ErrCodeEnhanceYourCalm, "too many settings"}
	case ack:
		return nil
	}
	b, err := c.in.take(h.Length)
	if err != nil {
		return err
	}
	work, err := c.set(b)
	if err != nil {
		return err
	}
	c.throttle()
	return c.charge(work / walkCost)
}

// set applies a frame of settings and returns its cost. Windows are resized
// once, by the last setting.
func (c *conn) set(list []byte) (work int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.settings.window
	for ; len(list) > 0; list = list[h2.SettingLen:] {
		id, v := http2.SettingID(binary.BigEndian.Uint16(list)), binary.BigEndian.Uint32(list[2:])
		if err := c.setLocked(id, v); err != nil {
			return 0, err
		}
		if id == http2.SettingInitialWindowSize {
			window = int64(v)
		}
	}
	c.putLocked(h2.AppendHeader(c.out.buf, 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	work, ok := c.resizeLocked(window)
	if !ok {
		return work, connError{http2.ErrCodeFlowControl, "a stream's window is too large"}
	}
	return work, nil
}

// setLocked applies one of the client's settings. It only checks the size of
// windows.
func (c *conn) setLocked(id http2.SettingID, v uint32) error {
	switch id {
	case http2.SettingHeaderTableSize:
		if v < h2.DefaultTable && !c.indexing.off {
			c.indexing = indexing{off: true, tell: true}
		}
	case http2.SettingEnablePush:
		if v > 1 {
			return connError{http2.ErrCodeProtocol, "SETTINGS_ENABLE_PUSH is neither 0 nor 1"}
		}
	case http2.SettingInitialWindowSize:
		if v > h2.MaxWindow {
			return connError{http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE is too large"}
		}
	case http2.SettingMaxFrameSize:
		if v < h2.MinMaxFrame || v > h2.MaxMaxFrame {
			return connError{http2.ErrCodeProtocol, "SETTINGS_MAX_FRAME_SIZE is out of range"}
		}
		c.settings.maxFrame = int(v)
	case http2.SettingMaxHeaderListSize:
		c.settings.maxHeaderList = int64(v)
	}
	return nil
}
