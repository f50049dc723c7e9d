// Command gpu runs an ONNX model in a loop on a GPU, without a server: what
// ONNX Runtime can do with batches of one size. It is the bar for the figures
// in bench/results/gpu.md.
//
//	gpu -batches 1,2,8,64 MODEL.onnx
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/library"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

func main() {
	batches := flag.String("batches", "1,2,4,8,16,32,64", "batch sizes")
	seconds := flag.Float64("seconds", 0.7, "how long each loop runs")
	spin := flag.Bool("spin", false, "wait with a busy core")
	options := flag.String("options", "", "options of the CUDA provider, such as prefer_nhwc=1,use_tf32=0")
	flag.Parse()
	runtime.LockOSThread()
	if err := run(flag.Arg(0), *batches, time.Duration(*seconds*float64(time.Second)), *spin, *options); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

// A bench is a model on a GPU with memory for its largest batch.
type bench struct {
	lib     *ort.Library
	dev     cuda.Device
	in, out ort.TensorInfo
	names   [2]*ort.Names
	spin    bool
	memory  ort.Memory
	stream  cuda.Stream
	event   cuda.Event
	at      [2]cuda.Address
}

func run(model, batches string, d time.Duration, spin bool, options string) error {
	path, err := library.Find(library.Environment("", os.Getenv))
	if err != nil {
		return err
	}
	library.Components(path)
	lib, err := ort.Open(path, ort.Threads{})
	if err != nil {
		return err
	}
	driver, err := cuda.Open()
	if err != nil {
		return err
	}
	dev, err := driver.Device(0)
	if err != nil {
		return err
	}
	if err := dev.Enter(); err != nil {
		return err
	}
	b := &bench{lib: lib, dev: dev, spin: spin}
	plain, err := lib.NewSession(model, provider(options))
	if err != nil {
		return err
	}
	if err := b.describe(plain); err != nil {
		return err
	}
	if b.stream, err = dev.NewStream(); err != nil {
		return err
	}
	if b.event, err = dev.NewEvent(spin); err != nil {
		return err
	}
	bound, err := lib.NewSession(model, provider(options,
		"has_user_compute_stream=1", "user_compute_stream="+strconv.FormatUint(uint64(b.stream), 10), "enable_cuda_graph=1"))
	if err != nil {
		return err
	}
	runs, err := lib.NewRunOptions(map[string]string{"disable_synchronize_execution_providers": "1", "gpu_graph_id": "-1"})
	if err != nil {
		return err
	}
	if b.memory, err = lib.NewMemory("Cuda", 0); err != nil {
		return err
	}
	fmt.Println("| batch | plain `Run`, pageable | pinned memory, bound | + CUDA graph | graph, no copies |")
	fmt.Println("|---|---|---|---|---|")
	for text := range strings.SplitSeq(batches, ",") {
		rows, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := b.batch(ort.NewCall(plain, nil), ort.NewCall(bound, runs), rows, d); err != nil {
			return fmt.Errorf("batch %d: %w", rows, err)
		}
	}
	return nil
}

// provider returns the options of a session, with those of the CUDA provider as
// a list and more.
func provider(list string, more ...string) ort.Options {
	o := map[string]string{"device_id": "0"}
	for _, text := range append(more, strings.Split(list, ",")...) {
		if name, value, ok := strings.Cut(text, "="); ok {
			o[name] = value
		}
	}
	return ort.Options{Providers: []ort.Provider{{Name: "CUDA", Options: o}}}
}

func (b *bench) describe(s *ort.Session) error {
	in, err := s.Inputs()
	if err != nil {
		return err
	}
	out, err := s.Outputs()
	if err != nil {
		return err
	}
	if len(in) != 1 || len(out) != 1 {
		return errors.New("the model must have one input and one output")
	}
	b.in, b.out = in[0], out[0]
	b.names = [2]*ort.Names{ort.NewNames([]string{in[0].Name}), ort.NewNames([]string{out[0].Name})}
	return nil
}

// batch prints the rates of one batch size.
func (b *bench) batch(plain, bound *ort.Call, rows int, d time.Duration) error {
	shapes := [2]tensor.Shape{shape(b.in, rows), shape(b.out, rows)}
	var size [2]int
	var pages, pinned [2][]byte
	var host, device [2]ort.Value
	for i, t := range [2]ort.TensorInfo{b.in, b.out} {
		n, _ := shapes[i].Bytes(t.Type)
		size[i] = int(n)
		var err error
		if pages[i], err = (backend.Pages{}).Alloc(size[i]); err != nil {
			return err
		}
		clear(pages[i])
		if pinned[i], err = b.dev.AllocHost(size[i]); err != nil {
			return err
		}
		clear(pinned[i])
		if b.at[i], err = b.dev.Alloc(size[i]); err != nil {
			return err
		}
		if host[i], err = b.lib.NewTensor(t.Type, shapes[i], uintptr(unsafe.Pointer(&pages[i][0])), size[i]); err != nil {
			return err
		}
		if device[i], err = b.lib.NewTensorIn(b.memory, t.Type, shapes[i], uintptr(b.at[i]), size[i]); err != nil {
			return err
		}
	}
	session := func() error { return bound.Run(b.names[0], device[:1], b.names[1], device[1:]) }
	wait := func() error {
		if err := b.dev.Record(b.event, b.stream); err != nil {
			return err
		}
		return b.dev.Synchronize(b.event)
	}
	if err := first(session, wait, session, wait); err != nil {
		return err
	}
	graph, err := b.dev.Capture(b.stream, session)
	if err != nil {
		return err
	}
	defer b.dev.DestroyGraph(graph)
	launch := func() error { return b.dev.Launch(graph, b.stream) }
	copied := func(f func() error) func() error {
		return func() error {
			return first(func() error { return b.dev.CopyIn(b.at[0], pinned[0], b.stream) }, f,
				func() error { return b.dev.CopyOut(pinned[1], b.at[1], b.stream) }, wait)
		}
	}
	fmt.Printf("| %d |", rows)
	for _, f := range []func() error{
		func() error { return plain.Run(b.names[0], host[:1], b.names[1], host[1:]) },
		copied(session), copied(launch), func() error { return first(launch, wait) },
	} {
		n, took, err := loop(f, d)
		if err != nil {
			return err
		}
		fmt.Printf(" %.0f (%.3f ms) |", float64(n*rows)/took.Seconds(), 1000*took.Seconds()/float64(n))
	}
	fmt.Println()
	return nil
}

func first(calls ...func() error) error {
	for _, f := range calls {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// loop calls f for a time, after as long a warm-up as the model needs.
func loop(f func() error, d time.Duration) (n int, took time.Duration, err error) {
	for range 5 {
		if err := f(); err != nil {
			return 0, 0, err
		}
	}
	for begin := time.Now(); took < d; took = time.Since(begin) {
		if err := f(); err != nil {
			return 0, 0, err
		}
		n++
	}
	return n, took, nil
}

// shape returns a tensor's shape with so many rows.
func shape(t ort.TensorInfo, rows int) tensor.Shape {
	s := append(tensor.Shape{}, t.Dims...)
	s[0] = int64(rows)
	return s
}
