package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// An endpoint is where one protocol listens, with the names of its flags.
type endpoint struct {
	protocol string
	address  string // a host, or unix:///path
	port     int
	reuse    bool
	addrFlag string
	portFlag string
	network  string      // of a Unix socket; "unix" when empty
	mode     fs.FileMode // of a Unix socket; 0 leaves it to the system
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix://"

// listen opens the endpoint. Its errors name the flag to change.
func (e endpoint) listen(ctx context.Context) (net.Listener, error) {
	if path, ok := strings.CutPrefix(e.address, unixPrefix); ok {
		return e.listenUnix(ctx, path)
	}
	cfg := net.ListenConfig{}
	if e.reuse {
		cfg.Control = reusePort
	}
	l, err := cfg.Listen(ctx, "tcp", net.JoinHostPort(e.address, strconv.Itoa(e.port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d is taken by another process; choose another with %s", e.port, e.portFlag)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("not allowed to listen on port %d; choose another with %s", e.port, e.portFlag)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on the address given by %s: %w", e.addrFlag, err)
	}
	return l, nil
}

// listenUnix opens a Unix socket. It replaces the socket of a dead server, but
// not one that somebody answers on.
func (e endpoint) listenUnix(ctx context.Context, path string) (net.Listener, error) {
	network := cmp.Or(e.network, "unix")
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if c, err := net.Dial(network, path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("socket %s is served by another process; choose another with %s", path, e.addrFlag)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("cannot replace the socket given by %s: %w", e.addrFlag, err)
		}
	}
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, network, path)
	if err == nil && e.mode != 0 {
		if err = os.Chmod(path, e.mode); err != nil {
			_ = l.Close() // the cause is more important
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the socket given by %s: %w", e.addrFlag, err)
	}
	return l, nil
}

func reusePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}
