package load

import (
	"net"
	"os"
	"testing"
)

func TestListenerFindsTheProcessBehindAPort(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		if got, err := Listener(port); err != nil || got != os.Getpid() {
			t.Errorf("%s: got %d, %v, want this process, %d", l.Addr(), got, err, os.Getpid())
		}
		l.Close()
		if got, err := Listener(port); err == nil && got == os.Getpid() {
			t.Errorf("%s: got %d after it was closed, want none", l.Addr(), got)
		}
	}
}
