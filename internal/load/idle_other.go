//go:build !unix

package load

import "net"

func takeNow(net.Conn, []byte) (int, bool) { return 0, false }

func peekNow(net.Conn) (int, bool) { return 0, false }
