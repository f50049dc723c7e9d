package httpserver

import (
	"bytes"
	"testing"
	"unsafe"

	"shoal/internal/inflight"
)

func TestABodyIsAlignedWhereItsMemoryHasRoom(t *testing.T) {
	for _, length := range []int{1, 100, 5000, 70_000, 602_234, 20 << 20} {
		for _, at := range []int{0, 1, 63, 64, 122} {
			at = min(at, length)
			p := NewBody(inflight.NewPool(nil))
			p.align = at
			sent := bytes.Repeat([]byte("0123456789"), length/10+1)[:length]
			if err := p.readAll(bytes.NewReader(sent), length, 1<<30, ErrBodyTooLarge); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p.B, sent) {
				t.Fatalf("%d bytes, byte %d aligned: got another body", length, at)
			}
			address := uintptr(unsafe.Pointer(unsafe.SliceData(p.B))) + uintptr(at)
			if room := cap(*p.buf) - length; room >= 64 && address%64 != 0 {
				t.Errorf("%d bytes: byte %d is at %x, want the start of a cache line", length, at, address)
			}
			p.Release()
		}
	}
}
