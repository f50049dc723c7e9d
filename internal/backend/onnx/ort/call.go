package ort

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// An Error is a failed call of the library.
type Error struct {
	Code    int
	Message string
}

// Error returns the text in the form that Triton's clients know.
func (e *Error) Error() string { return fmt.Sprintf("onnx runtime error %d: %s", e.Code, e.Message) }

// call makes a call that returns a status. It allocates; the hot path uses a
// Call instead. The directive keeps what the arguments point at alive and off
// the stack, as for purego.SyscallN itself.
//
//go:uintptrescapes
func (l *Library) call(fn int, args ...uintptr) error {
	status, _, _ := purego.SyscallN(l.fns[fn], args...)
	return l.err(status)
}

// release frees an object of the library; zero is none.
func (l *Library) release(fn int, object uintptr) {
	if object != 0 {
		purego.SyscallN(l.fns[fn], object)
	}
}

// err turns a status into an error and releases it.
func (l *Library) err(status uintptr) error {
	if status == 0 {
		return nil
	}
	code, _, _ := purego.SyscallN(l.fns[fnGetErrorCode], status)
	message, _, _ := purego.SyscallN(l.fns[fnGetErrorMessage], status)
	e := &Error{Code: int(int32(code)), Message: goString(message)}
	purego.SyscallN(l.fns[fnReleaseStatus], status)
	return e
}

// pointer converts an address in memory that Go does not manage. The detour
// tells vet that this is intended.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// Bytes returns the n bytes at an address in memory that Go does not manage.
func Bytes(address uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(address)), n)
}

// goString copies a C string.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	n := 0
	for p := pointer(address); *(*byte)(unsafe.Add(p, n)) != 0; n++ {
	}
	return string(unsafe.Slice((*byte)(pointer(address)), n))
}

// cString returns s with a NUL at its end.
func cString(s string) []byte { return append([]byte(s), 0) }

// cStrings returns the addresses of the strings' C forms, and those forms,
// which must be kept alive as long as the addresses are in use.
func cStrings(list []string) (addresses []uintptr, keep [][]byte) {
	for _, s := range list {
		b := cString(s)
		keep = append(keep, b)
		addresses = append(addresses, uintptr(unsafe.Pointer(&b[0])))
	}
	return addresses, keep
}

// first returns the address of the first of the words, 0 when there is none.
func first(words []uintptr) uintptr {
	if len(words) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&words[0]))
}
