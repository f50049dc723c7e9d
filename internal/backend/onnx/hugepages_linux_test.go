package onnx

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestCollapseTakesWhatIsInUse(t *testing.T) {
	if !hugePagesAllowed() || os.Getpagesize() != 4096 {
		t.Skip("the system has no huge pages for us")
	}
	memory := func(touched int) []byte {
		t.Helper()
		b, err := unix.Mmap(-1, 0, 4*hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		for i := 0; i < len(b); i += 4096 {
			if i/4096%8 < touched {
				b[i] = byte(i / 4096)
			}
		}
		return b
	}
	address := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

	sparse := memory(6)
	if n, err := collapseRange(address(sparse), address(sparse)+4*hugePage); n != 0 || err != nil {
		t.Errorf("a quarter of the pages is not in use: %d bytes collapsed, %v; want none", n, err)
	}
	dense := memory(8)
	n, err := collapseRange(address(dense), address(dense)+4*hugePage)
	if err != nil {
		t.Skipf("the system gives no huge pages: %v", err) // before Linux 6.1, or it has none left
	}
	if n < 3*hugePage {
		t.Errorf("%d bytes collapsed; want at least three huge pages", n)
	}
	for i := 0; i < len(dense); i += 4096 {
		if dense[i] != byte(i/4096) {
			t.Fatalf("page %d changed", i/4096)
		}
	}
	if _, err := collapse(); err != nil {
		t.Logf("the whole process: %v", err)
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = collapse() }); n > 64 {
		t.Errorf("%v allocations to look through the process, want few", n)
	}
}

func TestPrivateMemory(t *testing.T) {
	for line, want := range map[string]bool{
		"7f6b80000000-7f6b83064000 rw-p 00000000 00:00 0 ":                  true,
		"5581a6fd3000-5581a7011000 rw-p 00000000 00:00 0    [heap]":         true,
		"7f6b83064000-7f6b84000000 ---p 00000000 00:00 0 ":                  false,
		"7ffd8d0e2000-7ffd8d103000 rw-p 00000000 00:00 0    [stack]":        false,
		"c000000000-c000400000 rw-p 00000000 00:00 0    [anon: Go: heap]":   false,
		"7f6b8e4b1000-7f6b8e4b2000 rw-s 00000000 00:01 5    /dev/shm/x":     false,
		"00e49000-019a7000 rw-p 00a49000 fe:00 9979664      /usr/bin/shoal": false,
		"xyz-019a7000 rw-p 00a49000 00:00 0":                                false,
		"":                                                                  false,
	} {
		if from, to, ok := privateMemory([]byte(line)); ok != want || ok && from >= to {
			t.Errorf("%q: %x to %x, %v; want %v", line, from, to, ok, want)
		}
	}
}
