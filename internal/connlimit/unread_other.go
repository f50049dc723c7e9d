//go:build !unix

package connlimit

import "net"

// Unread is not known here.
func Unread(net.Conn) bool { return false }
