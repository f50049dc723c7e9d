package onnx

import (
	"bytes"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hugePage = 2 << 20 // of amd64 and of arm64 with pages of 4 KiB
	// densePages is how many pages of a huge one must be in use: the others become
	// memory that nobody asked for.
	densePages = 448
)

// collapse replaces pages of the process's private memory by huge ones where nearly
// all of a huge page is in use, and returns how many bytes are in such pages. Go's own
// heap stays as it is.
func collapse() (total int, err error) {
	if os.Getpagesize() != 4096 || !hugePagesAllowed() {
		return 0, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	heap := uintptr(unsafe.Pointer(new([1 << 17]byte))) // too large for a stack: it is on Go's heap
	for line := range bytes.Lines(maps) {
		from, to, ok := privateMemory(line)
		if !ok || from <= heap && heap < to {
			continue
		}
		n, failed := collapseRange(from, to)
		total += n
		if failed != nil {
			err = failed
		}
	}
	return total, err
}

// hugePagesAllowed reports whether the system gives huge pages to programs that ask.
func hugePagesAllowed() bool {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(b, []byte("[never]"))
}

// privateMemory returns the addresses in a line of /proc/self/maps if it is memory
// that a program has allocated for itself: it can be written, and has no name or is
// the C library's heap.
func privateMemory(line []byte) (from, to uintptr, ok bool) {
	addresses, rest, _ := bytes.Cut(line, []byte(" "))
	access, rest, _ := bytes.Cut(rest, []byte(" "))
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // the offset in a file
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // the device
	inode, name, _ := bytes.Cut(rest, []byte(" "))
	name = bytes.TrimSpace(name)
	if string(access) != "rw-p" || string(bytes.TrimSpace(inode)) != "0" || len(name) > 0 && string(name) != "[heap]" {
		return 0, 0, false
	}
	low, high, _ := bytes.Cut(addresses, []byte("-"))
	a, err := strconv.ParseUint(string(low), 16, 64)
	b, err2 := strconv.ParseUint(string(high), 16, 64)
	return uintptr(a), uintptr(b), err == nil && err2 == nil
}

func collapseRange(from, to uintptr) (total int, err error) {
	var resident [hugePage / 4096]byte
	for at := (from + hugePage - 1) &^ (hugePage - 1); at+hugePage <= to; at += hugePage {
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, at, hugePage, uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
			continue // it was freed meanwhile
		}
		used := 0
		for _, r := range resident {
			used += int(r & 1)
		}
		if used < densePages {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, at, hugePage, unix.MADV_COLLAPSE); errno != 0 {
			err = errno
			continue
		}
		total += hugePage
	}
	return total, err
}
