//go:build !linux

package session

import (
	"errors"
	"net"
	"sync/atomic"
	"unsafe"

	"shoal/internal/infer"
)

func newRegion(int, bool) ([]byte, int, error) { return nil, -1, errors.ErrUnsupported }

func share([]byte, int) *infer.Shared { return nil }

func unmap([]byte) {}

func closeFDs(...int) {}

func rights(...int) []byte { return nil }

func word(b []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }

func wake(*uint32) {}

func peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }

func send(uintptr, []byte) {}

func load(w *uint32) uint32     { return atomic.LoadUint32(w) }
func store(w *uint32, n uint32) { atomic.StoreUint32(w, n) }
