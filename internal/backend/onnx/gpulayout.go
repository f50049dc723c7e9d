package onnx

import (
	"os"
	"slices"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/cuda"
)

// channelsLast are the options by which ONNX Runtime's CUDA provider computes
// convolutions in the layout that tensor cores read (NHWC), each together with
// its bias and activation. On an H200, ResNet-50 is 1.6 times as fast with
// them. Other models are slower, and outputs differ in their last digits: it is
// for models that ask for it.
var channelsLast = map[string]string{"prefer_nhwc": "1", "fuse_conv_bias": "1"}

// A layout is how a model's convolutions run on GPUs, which is found out once.
type layout struct {
	tried sync.Once
	last  bool // with channels last
}

// A trial is how a model runs in one way: the outputs of some batches, and how
// long they take.
type trial struct {
	outputs [][][]byte
	took    []time.Duration
}

// prefersChannelsLast reports whether the model has convolutions that are faster
// with channels last, and gives the same outputs so but for their last digits. It
// is tried if the configuration asks for that (prefer_nhwc: auto).
func (m *loaded) prefersChannelsLast(dev cuda.Device, p backend.Placement) bool {
	m.layout.tried.Do(func() {
		s := &m.opening.set
		if !s.tryLayouts || !m.hasConvolutions() {
			return
		}
		if !s.graphs {
			m.backend.log.Warn("prefer_nhwc: auto compares CUDA graphs, and the model is to run without: convolutions run in the usual layout", "model", m.sig.Name)
			return
		}
		plain, err := m.try(dev, p, way{graphs: true, trial: true})
		if err != nil {
			return // the model's start says what is wrong
		}
		other, err := m.try(dev, p, way{graphs: true, trial: true, channelsLast: true})
		if err != nil {
			m.backend.log.Info("convolutions cannot run with channels last", "model", m.sig.Name, "err", err)
			return
		}
		m.layout.last = other.faster(plain) && m.sameOutputs(plain, other)
	})
	return m.layout.last
}

func (m *loaded) hasConvolutions() bool {
	f, err := os.Open(m.opening.path)
	if err != nil {
		return false
	}
	defer f.Close()
	found, err := hasOperator(f, "Conv")
	return err == nil && found
}

// try runs the model in a way.
func (m *loaded) try(dev cuda.Device, p backend.Placement, w way) (trial, error) {
	var t trial
	in, err := m.newGPUInstance(dev, p, w)
	if err != nil {
		return t, err
	}
	err = in.thread.do(func() error {
		if err := dev.Enter(); err != nil {
			return err
		}
		defer dev.Leave()
		return in.runTrial(&t)
	})
	_ = in.Close() // the first error is more important
	return t, err
}

// trialRuns is how often a batch is run; the fastest counts.
const trialRuns = 5

// runTrial runs the recorded batches. It is for the instance's thread.
func (in *gpuInstance) runTrial(t *trial) error {
	for _, s := range in.sizes {
		launch := func() error { return in.device.Launch(s.graph, in.compute) }
		outputs, err := in.sample(s.rows, launch)
		if err != nil {
			return err
		}
		var took []time.Duration
		for range trialRuns {
			begin := time.Now()
			if err := in.settle(launch); err != nil {
				return err
			}
			took = append(took, time.Since(begin))
		}
		t.outputs, t.took = append(t.outputs, outputs), append(t.took, slices.Min(took))
	}
	return nil
}

// faster reports whether large batches take less time than in another way, and
// small ones no more.
func (t trial) faster(than trial) bool {
	few, many := t.took[0], t.took[len(t.took)-1]
	fewThere, manyThere := than.took[0], than.took[len(than.took)-1]
	return float64(many) < 0.95*float64(manyThere) && float64(few) < 1.05*float64(fewThere)
}

// sameOutputs compares the outputs of two trials.
func (m *loaded) sameOutputs(a, b trial) bool {
	for i := range a.outputs {
		for k := range a.outputs[i] {
			if !alike(m.outputs[k].Type, a.outputs[i][k], b.outputs[i][k]) {
				return false
			}
		}
	}
	return true
}
