package onnx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"shoal/internal/backend/cuda"
	"shoal/internal/tensor"
)

// A graphSize is a batch size with a recorded graph.
type graphSize struct {
	rows  int
	graph cuda.Graph
	took  time.Duration // one run, at warm-up
}

// A noGraphsError is why a model cannot run with CUDA graphs.
type noGraphsError struct{ why error }

func (e *noGraphsError) Error() string { return "no CUDA graphs: " + e.why.Error() }

// captured returns the batch sizes with a graph.
func (in *gpuInstance) captured() []int {
	var rows []int
	for _, s := range in.sizes {
		rows = append(rows, s.rows)
	}
	return rows
}

// graphFor returns the smallest graph for so many rows, nil when there is none.
func (in *gpuInstance) graphFor(rows int) *graphSize {
	for _, s := range in.sizes {
		if s.rows >= rows {
			return s
		}
	}
	return nil
}

// warmUp runs every batch size that will occur, so that the search for the
// fastest algorithms, which is repeated for each size, is over before clients
// come; and records the graphs. The largest is first: it decides how much memory
// the others find.
func (in *gpuInstance) warmUp(w way) error {
	sizes := graphSizes(in.model.sig.MaxBatch, in.model.opening.set.graphSizes)
	if w.trial {
		sizes = slices.Compact([]int{1, sizes[len(sizes)-1]})
	}
	for _, rows := range slices.Backward(sizes) {
		want, err := in.sample(rows, func() error { return in.submit(rows) })
		if err != nil {
			return fmt.Errorf("warm up a batch of %d: %w", rows, err)
		}
		if !w.graphs {
			continue
		}
		if err := in.record(rows, want); err != nil {
			return &noGraphsError{fmt.Errorf("record a batch of %d: %w", rows, err)}
		}
	}
	if len(in.model.opening.set.graphSizes) > 0 || !w.graphs || w.trial {
		return nil
	}
	for rows := in.between(); rows > 0; rows = in.between() {
		want, err := in.sample(rows, func() error { return in.submit(rows) })
		if err == nil {
			err = in.record(rows, want)
		}
		if err != nil { // those that there are will do
			in.model.backend.log.Info("fewer CUDA graphs than wanted", "model", in.model.sig.Name, "rows", rows, "err", err)
			return nil
		}
	}
	return nil
}

const (
	// maxGraphs bounds the graphs that nobody has listed.
	maxGraphs = 16
	// steep is how much longer a batch of one size may take than one of the
	// size below: that much of the time is lost to padding.
	steep = 1.2
)

// between returns a batch size between two recorded ones where padding costs
// most, 0 when it costs little everywhere: small batches take as long as
// smaller ones, large ones longer by what they have more.
func (in *gpuInstance) between() int {
	if len(in.sizes) >= maxGraphs {
		return 0
	}
	rows, most := 0, time.Duration(0)
	for i, s := range in.sizes[1:] {
		below := in.sizes[i]
		if lost := s.took - below.took; s.rows-below.rows > 1 && float64(s.took) > steep*float64(below.took) && lost > most {
			rows, most = (s.rows+below.rows+1)/2, lost
		}
	}
	return rows
}

// record makes the graph of a batch size. Its outputs must be those of the
// model without it.
func (in *gpuInstance) record(rows int, want [][]byte) error {
	// The second run of a size reserves the memory that the first has shown to
	// be needed; from the third on nothing changes.
	if err := in.settle(func() error { return in.submit(rows) }); err != nil {
		return err
	}
	t, err := in.tensorsFor(rows)
	if err != nil {
		return err
	}
	g, err := in.device.Capture(in.compute, func() error { return in.runSession(t) })
	if err != nil {
		return err
	}
	at, _ := slices.BinarySearchFunc(in.sizes, rows, func(s *graphSize, rows int) int { return s.rows - rows })
	in.sizes = slices.Insert(in.sizes, at, &graphSize{rows: rows, graph: g})
	got, err := in.sample(rows, func() error { return in.device.Launch(g, in.compute) })
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := in.settle(func() error { return in.device.Launch(g, in.compute) }); err != nil {
		return err
	}
	in.sizes[at].took = time.Since(begin)
	for i := range want {
		if !alike(in.model.outputs[i].Type, want[i], got[i]) {
			return fmt.Errorf("output '%s' of the graph is not that of the model", in.model.outputs[i].Name)
		}
	}
	return nil
}

// sample has f run the model over inputs of a pattern and returns the outputs.
func (in *gpuInstance) sample(rows int, f func() error) ([][]byte, error) {
	slot := in.all[0]
	at := 0
	for i := range in.inputs {
		x := &in.model.inputs[i]
		b := slot.region.mem[at : at+x.bytes(rows)]
		fillSample(x.Type, b)
		if err := in.device.CopyIn(in.inputs[i], b, in.compute); err != nil {
			return nil, err
		}
		at = align(at + len(b))
	}
	for i := range in.outputs {
		if err := in.device.Zero(in.outputs[i], in.model.outputs[i].bytes(rows), in.compute); err != nil {
			return nil, err
		}
	}
	out := in.slots.take()
	defer in.slots.put(out)
	set, err := out.setFor(rows)
	if err != nil {
		return nil, err
	}
	err = in.settle(func() error {
		if err := f(); err != nil {
			return err
		}
		for i := range set.outs {
			if err := in.device.CopyOut(set.outs[i].data, in.outputs[i], in.compute); err != nil {
				return err
			}
		}
		return nil
	})
	var outputs [][]byte
	for i := range set.outs {
		outputs = append(outputs, slices.Clone(set.outs[i].data))
	}
	return outputs, err
}

// fillSample fills a tensor with values between -1 and 1, and of other types
// than FP32 with zeros: numbers may be places in a table.
func fillSample(t tensor.Type, b []byte) {
	clear(b)
	if t != tensor.FP32 {
		return
	}
	x := uint32(1)
	for ; len(b) >= 4; b = b[4:] {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(int32(x))/(1<<31)))
	}
}

// alike reports whether two outputs are the same, but for the last digits of
// FP32, which depend on the order of sums.
func alike(t tensor.Type, a, b []byte) bool {
	if t != tensor.FP32 {
		return t == tensor.FP16 || t == tensor.BF16 || bytes.Equal(a, b)
	}
	var largest, differs float64
	for ; len(a) >= 4; a, b = a[4:], b[4:] {
		x, y := binary.LittleEndian.Uint32(a), binary.LittleEndian.Uint32(b)
		v, w := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
		if x == y && math.IsNaN(v) {
			continue
		}
		largest = max(largest, math.Abs(v))
		differs = max(differs, math.Abs(v-w))
	}
	return differs <= largest/100
}

// graphSizes returns the batch sizes that are prepared: those listed, or the
// powers of two, and the largest.
func graphSizes(limit int, listed []int) []int {
	limit = max(1, limit)
	sizes := []int{limit}
	for _, n := range listed {
		if n < limit {
			sizes = append(sizes, n)
		}
	}
	for n := 1; n < limit && len(listed) == 0; n *= 2 {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func (in *gpuInstance) dropGraphs() {
	for _, s := range in.sizes {
		in.device.DestroyGraph(s.graph)
	}
	in.sizes = nil
}
