// Package ort is a thin layer over the C API of ONNX Runtime, whose shared
// library is loaded at run time: no cgo, no C compiler.
//
// It knows nothing of models or requests. Objects of the library are handles
// with a Close or Release that the caller must call; they are not garbage
// collected. A Library and a Session may be used from many goroutines, a Call
// from one at a time.
package ort

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A Library is a loaded ONNX Runtime with its environment.
type Library struct {
	path      string
	version   string
	fns       [tableSize]uintptr
	newer     []uintptr // the table of newerAPI; nil when the library is older
	env       uintptr
	cpu       uintptr // the OrtMemoryInfo of plain memory
	allocator uintptr // the library's default allocator
	global    bool    // sessions use the environment's threads
}

// Threads asks for thread pools that all sessions share. Zero counts mean one
// thread per core.
type Threads struct {
	Global       bool
	Intra, Inter int
}

var process struct {
	mu  sync.Mutex // protects the fields below
	lib *Library
}

// Open loads the library at path and makes its environment. A process has one
// environment for its lifetime: another call returns the same Library, and a
// call with another path fails.
func Open(path string, t Threads) (*Library, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	if l := process.lib; l != nil {
		if l.path != path {
			return nil, fmt.Errorf("ONNX Runtime is already loaded from %s; one process uses one library", l.path)
		}
		return l, nil
	}
	l, err := load(path)
	if err != nil {
		return nil, err
	}
	if err := l.start(t); err != nil {
		return nil, fmt.Errorf("start ONNX Runtime %s: %w", l.version, err)
	}
	process.lib = l
	return l, nil
}

// Inspect loads the library at path to read its version and its execution
// providers. The library stays mapped.
func Inspect(path string) (version string, providers []string, err error) {
	l, err := load(path)
	if err != nil {
		return "", nil, err
	}
	providers, err = l.Providers()
	return l.version, providers, err
}

func load(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load ONNX Runtime: %w", err)
	}
	entry, err := purego.Dlsym(handle, "OrtGetApiBase")
	if err != nil {
		return nil, fmt.Errorf("%s is not an ONNX Runtime library: it has no OrtGetApiBase", path)
	}
	base, _, _ := purego.SyscallN(entry)
	if base == 0 {
		return nil, fmt.Errorf("%s is not an ONNX Runtime library: OrtGetApiBase returns nothing", path)
	}
	// The base is two functions: GetApi(version) and GetVersionString().
	funcs := unsafe.Slice((*uintptr)(pointer(base)), 2)
	name, _, _ := purego.SyscallN(funcs[1])
	l := &Library{path: path, version: goString(name)}
	table, _, _ := purego.SyscallN(funcs[0], minAPI)
	if table == 0 {
		return nil, fmt.Errorf("%s is ONNX Runtime %s; Shoal needs 1.%d or later", path, l.version, minAPI)
	}
	copy(l.fns[:], unsafe.Slice((*uintptr)(pointer(table)), tableSize))
	if table, _, _ := purego.SyscallN(funcs[0], newerAPI); table != 0 {
		l.newer = slices.Clone(unsafe.Slice((*uintptr)(pointer(table)), newerSize))
	}
	return l, nil
}

// start makes the environment and the objects that everything else needs.
func (l *Library) start(t Threads) error {
	if err := quiet(); err != nil {
		return err
	}
	if err := l.newEnv(t); err != nil {
		return err
	}
	if err := l.call(fnDisableTelemetryEvents, l.env); err != nil {
		return err
	}
	if err := l.call(fnCreateCPUMemoryInfo, allocatorArena, memoryDefault, uintptr(unsafe.Pointer(&l.cpu))); err != nil {
		return err
	}
	return l.call(fnGetAllocatorWithDefaultOptions, uintptr(unsafe.Pointer(&l.allocator)))
}

// quiet turns the library's telemetry off, before its environment exists. From
// 1.29 on the official builds for Linux and macOS report model names, hashes
// and more to their maker unless this variable is set, and write an identifier
// and a database into the user's cache folder; the function that disables
// events comes too late for that. If the user has set the variable, it stays.
func quiet() error {
	const variable = "ORT_DISABLE_TELEMETRY"
	if _, set := os.LookupEnv(variable); set {
		return nil
	}
	return os.Setenv(variable, "1") // also reaches the C library's environment
}

// newEnv makes the environment. Its log level is "fatal": the library also
// returns every error as a status, and a line on standard error per failed run
// would let clients fill the disk.
func (l *Library) newEnv(t Threads) error {
	id := cString("shoal")
	if !t.Global {
		return l.call(fnCreateEnv, logFatal, uintptr(unsafe.Pointer(&id[0])), uintptr(unsafe.Pointer(&l.env)))
	}
	l.global = true
	var options uintptr
	if err := l.call(fnCreateThreadingOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return err
	}
	defer l.release(fnReleaseThreadingOptions, options)
	for _, s := range [...]struct{ fn, value int }{
		{fnSetGlobalIntraOpNumThreads, t.Intra},
		{fnSetGlobalInterOpNumThreads, t.Inter},
		{fnSetGlobalSpinControl, 0},
	} {
		if err := l.call(s.fn, options, uintptr(s.value)); err != nil {
			return err
		}
	}
	return l.call(fnCreateEnvWithGlobalThreadPools, logFatal, uintptr(unsafe.Pointer(&id[0])), options, uintptr(unsafe.Pointer(&l.env)))
}

// Path returns where the library was loaded from.
func (l *Library) Path() string { return l.path }

// Version returns the library's version, such as "1.30.0".
func (l *Library) Version() string { return l.version }

// LimitsSpinning reports whether sessions of the library can limit how long their
// threads spin: from 1.26 on.
func (l *Library) LimitsSpinning() bool {
	major, rest, _ := strings.Cut(l.version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return major != "1" || err == nil && n >= 26
}

// GlobalThreads reports whether sessions share the environment's threads.
func (l *Library) GlobalThreads() bool { return l.global }

// Providers returns the execution providers that the library was built with,
// best first, such as "CPUExecutionProvider".
func (l *Library) Providers() ([]string, error) {
	var list uintptr
	var n int32
	if err := l.call(fnGetAvailableProviders, uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i, p := range unsafe.Slice((*uintptr)(pointer(list)), n) {
		names[i] = goString(p)
	}
	return names, l.call(fnReleaseAvailableProviders, list, uintptr(n))
}
