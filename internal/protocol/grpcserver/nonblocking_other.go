//go:build !linux

package grpcserver

import "net"

// A nonBlocking is a socket that is written to without waiting.
type nonBlocking struct{}

// newNonBlocking returns nil: there is none here.
func newNonBlocking(net.Conn) *nonBlocking { return nil }

func (*nonBlocking) write(net.Buffers) (int, error) {
	panic("BUG: grpcserver: no socket is written to without waiting here")
}
