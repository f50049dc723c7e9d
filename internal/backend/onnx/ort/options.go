package ort

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"unsafe"
)

// An Optimization is how far the library optimises a graph before it runs it.
type Optimization int

// The levels of optimization. The zero value is all of them.
const (
	OptimizeAll Optimization = iota
	OptimizeExtended
	OptimizeBasic
	OptimizeNothing
)

var optimizations = [...]uintptr{
	OptimizeAll:      graphAll,
	OptimizeExtended: graphExtended,
	OptimizeBasic:    graphBasic,
	OptimizeNothing:  graphDisableAll,
}

// Options are the options of a session. The zero value is the library's
// defaults.
type Options struct {
	Intra, Inter int  // threads within and between nodes; 0 means one per core
	Parallel     bool // run independent nodes at the same time
	Optimization Optimization
	MemArena     *bool // nil means the library's default
	MemPattern   *bool
	Config       map[string]string // entries by the library's own names
	Providers    []Provider        // tried in this order, the CPU last
	CustomOps    []string          // paths of libraries with custom operators
}

// A Provider is an execution provider with its options, by the name that the
// library lists it under, without "ExecutionProvider": "CUDA".
type Provider struct {
	Name    string
	Options map[string]string
}

// sessionOptions returns the library's object for o; the caller releases it.
func (l *Library) sessionOptions(o Options) (uintptr, error) {
	var so uintptr
	if err := l.call(fnCreateSessionOptions, uintptr(unsafe.Pointer(&so))); err != nil {
		return 0, err
	}
	if err := l.fillOptions(so, o); err != nil {
		l.release(fnReleaseSessionOptions, so)
		return 0, err
	}
	return so, nil
}

func (l *Library) fillOptions(so uintptr, o Options) error {
	if err := l.setPlain(so, o); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(o.Config)) {
		k, v := cString(key), cString(o.Config[key])
		if err := l.call(fnAddSessionConfigEntry, so, uintptr(unsafe.Pointer(&k[0])), uintptr(unsafe.Pointer(&v[0]))); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	for _, p := range o.Providers {
		if err := l.appendProvider(so, p); err != nil {
			return fmt.Errorf("add execution provider %s: %w", p.Name, err)
		}
	}
	for _, path := range o.CustomOps {
		p := cString(path)
		if err := l.call(fnRegisterCustomOpsLibrary, so, uintptr(unsafe.Pointer(&p[0]))); err != nil {
			return fmt.Errorf("load custom operators %s: %w", path, err)
		}
	}
	return nil
}

// setPlain sets the options that have their own function.
func (l *Library) setPlain(so uintptr, o Options) error {
	type setting struct {
		fn   int
		args []uintptr
	}
	settings := []setting{{fnSetGraphOptimizationLevel, []uintptr{so, optimizations[o.Optimization]}}}
	if l.global {
		settings = append(settings, setting{fnDisablePerSessionThreads, []uintptr{so}})
	} else {
		settings = append(settings,
			setting{fnSetIntraOpNumThreads, []uintptr{so, uintptr(o.Intra)}},
			setting{fnSetInterOpNumThreads, []uintptr{so, uintptr(o.Inter)}})
	}
	if o.Parallel {
		settings = append(settings, setting{fnSetSessionExecutionMode, []uintptr{so, 1}})
	}
	if o.MemArena != nil {
		settings = append(settings, setting{either(*o.MemArena, fnEnableCPUMemArena, fnDisableCPUMemArena), []uintptr{so}})
	}
	if o.MemPattern != nil {
		settings = append(settings, setting{either(*o.MemPattern, fnEnableMemPattern, fnDisableMemPattern), []uintptr{so}})
	}
	for _, s := range settings {
		if err := l.call(s.fn, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func either(b bool, yes, no int) int {
	if b {
		return yes
	}
	return no
}

// appendProvider adds p. CUDA and TensorRT have their own option objects; all
// others use the general function.
func (l *Library) appendProvider(so uintptr, p Provider) error {
	keys := slices.Sorted(maps.Keys(p.Options))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = p.Options[k]
	}
	ks, keepKeys := cStrings(keys)
	vs, keepValues := cStrings(values)
	defer runtime.KeepAlive([]any{ks, vs, keepKeys, keepValues}) // the calls below have only addresses
	switch p.Name {
	case "CUDA":
		return l.appendWithOptions(so, fnCreateCUDAOptions, fnUpdateCUDAOptions, fnAppendProviderCUDA, fnReleaseCUDAOptions, ks, vs)
	case "Tensorrt":
		return l.appendWithOptions(so, fnCreateTensorRTOptions, fnUpdateTensorRTOptions, fnAppendProviderTensorRT, fnReleaseTensorRTOptions, ks, vs)
	}
	name := cString(p.Name)
	return l.call(fnAppendProvider, so, uintptr(unsafe.Pointer(&name[0])), first(ks), first(vs), uintptr(len(ks)))
}

func (l *Library) appendWithOptions(so uintptr, create, update, add, release int, keys, values []uintptr) error {
	var options uintptr
	if err := l.call(create, uintptr(unsafe.Pointer(&options))); err != nil {
		return err
	}
	defer l.release(release, options)
	if len(keys) > 0 {
		if err := l.call(update, options, first(keys), first(values), uintptr(len(keys))); err != nil {
			return err
		}
	}
	return l.call(add, so, options)
}
