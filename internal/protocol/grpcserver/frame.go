package grpcserver

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frameHeaderLen is the length of what stands before each frame.
const frameHeaderLen = 9

// What HTTP/2 itself sets.
const (
	defaultWindow   = 65535
	maxWindow       = 1<<31 - 1
	minMaxFrame     = 1 << 14
	maxMaxFrame     = 1<<24 - 1
	defaultTable    = 4096
	settingLen      = 6
	pingLen         = 8
	windowUpdateLen = 4
	resetLen        = 4
	priorityLen     = 5
	goAwayLen       = 8
)

// A frameHeader is what stands before each frame.
type frameHeader struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// parseFrameHeader reads the header from b, which has frameHeaderLen bytes.
func parseFrameHeader(b []byte) frameHeader {
	_ = b[frameHeaderLen-1]
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   http2.FrameType(b[3]),
		flags:  http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) & maxWindow,
	}
}

// appendFrameHeader appends the header of a frame whose payload follows.
func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// appendNumber appends a frame whose payload is one number: a window's increment
// or the reason of a reset.
func appendNumber(b []byte, kind http2.FrameType, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(b, 4, kind, 0, stream), n)
}

func appendSettings(b []byte, list []http2.Setting) []byte {
	b = appendFrameHeader(b, settingLen*len(list), http2.FrameSettings, 0, 0)
	for _, s := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, debug string) []byte {
	b = appendFrameHeader(b, goAwayLen+len(debug), http2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, debug...)
}

func appendPing(b []byte, flags http2.Flags, data [pingLen]byte) []byte {
	return append(appendFrameHeader(b, pingLen, http2.FramePing, flags, 0), data[:]...)
}

// A connError ends a connection with a GOAWAY that says why.
type connError struct {
	code http2.ErrCode
	text string
}

func (e connError) Error() string { return "HTTP/2: " + e.code.String() + ": " + e.text }

// unpad takes the padding off a payload. It reports false when there is more of
// it than payload.
func unpad(h frameHeader, p []byte) ([]byte, bool) {
	if !h.flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}
