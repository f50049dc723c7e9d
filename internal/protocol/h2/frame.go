// Package h2 is the layout of HTTP/2's frames: headers, payloads that are one
// or two numbers, and the protocol's limits. The gRPC server and the load
// generator use it.
package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// HeaderLen is the length of a frame's header.
const HeaderLen = 9

// The protocol's constants.
const (
	DefaultWindow   = 65535
	MaxWindow       = 1<<31 - 1
	MinMaxFrame     = 1 << 14
	MaxMaxFrame     = 1<<24 - 1
	DefaultTable    = 4096
	SettingLen      = 6
	PingLen         = 8
	WindowUpdateLen = 4
	ResetLen        = 4
	PriorityLen     = 5
	GoAwayLen       = 8
)

// A Header is a frame's header.
type Header struct {
	Length int
	Kind   http2.FrameType
	Flags  http2.Flags
	Stream uint32
}

// ParseHeader reads the header from b, which has HeaderLen bytes.
func ParseHeader(b []byte) Header {
	_ = b[HeaderLen-1]
	return Header{
		Length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		Kind:   http2.FrameType(b[3]),
		Flags:  http2.Flags(b[4]),
		Stream: binary.BigEndian.Uint32(b[5:]) & MaxWindow,
	}
}

// AppendHeader appends the header of a frame whose payload follows.
func AppendHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// AppendNumber appends a frame whose payload is one number: a window increment
// or an error code.
func AppendNumber(b []byte, kind http2.FrameType, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(b, 4, kind, 0, stream), n)
}

// AppendSettings appends a frame with settings.
func AppendSettings(b []byte, list []http2.Setting) []byte {
	b = AppendHeader(b, SettingLen*len(list), http2.FrameSettings, 0, 0)
	for _, s := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

// AppendGoAway appends a frame that ends a connection.
func AppendGoAway(b []byte, last uint32, code http2.ErrCode, debug string) []byte {
	b = AppendHeader(b, GoAwayLen+len(debug), http2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, debug...)
}

// AppendPing appends a ping, or the answer to one.
func AppendPing(b []byte, flags http2.Flags, data [PingLen]byte) []byte {
	return append(AppendHeader(b, PingLen, http2.FramePing, flags, 0), data[:]...)
}

// Unpad removes the padding of a payload. It returns false when the padding is
// longer than the payload.
func Unpad(h Header, p []byte) ([]byte, bool) {
	if !h.Flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}
