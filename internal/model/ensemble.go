package model

import (
	"maps"
	"slices"

	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// An Ensemble is how tensors get from step to step of a model that is made of
// other models. Tensors and steps are known by their indexes. It does not change.
type Ensemble struct {
	Name    string
	Tensors []string
	Inputs  []int      // the tensor of each input of the ensemble
	Outputs []Link     // the tensor of each output of the ensemble, and its shape
	Steps   []Step     // each after those that write what it reads
	Readers [][]Reader // of each tensor
	// Level tells apart the tensors that there can be any number of: all of one
	// level come from the same responses of a decoupled step. What is there once
	// has level 0.
	Level []int
	// Answers is the level of the ensemble's outputs. The ensemble is decoupled
	// unless it is 0.
	Answers int
	// MaxInFlight bounds the requests of each step that are in flight at a
	// time; 0 for no bound.
	MaxInFlight int
}

// A Step is one call of another model.
type Step struct {
	Model     string
	Version   int64 // -1 for the latest
	Batching  bool  // the model has a batch dimension
	Decoupled bool
	Inputs    []Link // in the order of the model's inputs, without those that are left out
	Outputs   []Link
	Whole     bool // Outputs are all of the model
}

// A Link connects an input or output of a step's model with a tensor. Dims is
// the model's shape, without the batch dimension.
type Link struct {
	Name   string
	Tensor int
	Dims   tensor.Shape
}

// A Reader is an input of a step that reads a tensor.
type Reader struct{ Step, Input int }

// IsEnsemble reports whether a model is made of other models.
func IsEnsemble(cfg *modelpb.ModelConfig) bool {
	return cfg.GetEnsembleScheduling() != nil || cfg.GetPlatform() == ensemblePlatform
}

// NewEnsemble compares a valid ensemble with the complete configurations of its
// models, which part returns, and reports all differences at once; the error
// has code InvalidArgument.
func NewEnsemble(cfg *modelpb.ModelConfig, part func(name string, version int64) *modelpb.ModelConfig) (*Ensemble, error) {
	b := ensembleBuilder{
		cfg: cfg, nodes: make(map[string]*ensembleNode),
		e: &Ensemble{Name: cfg.Name, MaxInFlight: int(cfg.GetEnsembleScheduling().GetMaxInflightRequests())},
	}
	for _, in := range cfg.Input {
		b.e.Inputs = append(b.e.Inputs, b.node(in.Name, cfg, in.DataType, backendDims(in)).index)
	}
	for _, out := range cfg.Output {
		n := b.node(out.Name, cfg, out.DataType, backendDims(out))
		b.e.Outputs = append(b.e.Outputs, Link{Name: out.Name, Tensor: n.index, Dims: n.dims})
	}
	for _, i := range b.order() {
		step := cfg.GetEnsembleScheduling().Step[i]
		b.step(step, part(step.ModelName, step.ModelVersion))
	}
	b.level()
	if err := b.p.err(false); err != nil {
		return nil, err
	}
	return b.e, nil
}

type ensembleBuilder struct {
	cfg   *modelpb.ModelConfig
	e     *Ensemble
	nodes map[string]*ensembleNode
	p     problems
}

// An ensembleNode is a tensor as the model sees it that was found to use it
// first.
type ensembleNode struct {
	index      int
	owner      string
	typ        tensor.Type
	dims, full tensor.Shape
}

func newEnsembleNode(owner *modelpb.ModelConfig, typ modelpb.DataType, dims tensor.Shape) *ensembleNode {
	n := &ensembleNode{owner: owner.Name, typ: tensor.Type(typ), dims: dims, full: dims}
	if owner.MaxBatchSize > 0 {
		n.full = append(tensor.Shape{-1}, dims...)
	}
	return n
}

// node returns the tensor of that name, and checks that the models which use it
// agree about it.
func (b *ensembleBuilder) node(name string, owner *modelpb.ModelConfig, typ modelpb.DataType, dims tensor.Shape) *ensembleNode {
	n := newEnsembleNode(owner, typ, dims)
	known := b.nodes[name]
	if known == nil {
		n.index = len(b.e.Tensors)
		b.e.Tensors = append(b.e.Tensors, name)
		b.e.Readers = append(b.e.Readers, nil)
		b.nodes[name] = n
		return n
	}
	switch {
	case known.typ != n.typ:
		b.p.add("in ensemble %s, ensemble tensor %s: inconsistent data type: %s is inferred from model %s while %s is inferred from model %s",
			b.cfg.Name, name, known.typ.ConfigName(), known.owner, n.typ.ConfigName(), n.owner)
	case !agree(known.dims, n.dims) && !agree(known.full, n.full):
		b.p.add("in ensemble %s, ensemble tensor %s: inconsistent shape: %s is inferred from model %s while %s is inferred from model %s",
			b.cfg.Name, name, known.full, known.owner, n.full, n.owner)
	}
	return known
}

// agree reports whether a tensor can have both shapes.
func agree(a, b tensor.Shape) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && a[i] != -1 && b[i] != -1 {
			return false
		}
	}
	return true
}

// order returns the steps so that each comes after those that write what it
// reads.
func (b *ensembleBuilder) order() []int {
	steps := b.cfg.GetEnsembleScheduling().Step
	f := flow{ready: make(map[string]bool)}
	for _, in := range b.cfg.Input {
		f.ready[in.Name] = true
	}
	var order []int
	done := make([]bool, len(steps))
	for grew := true; grew; {
		grew = false
		for i, step := range steps {
			if done[i] || !f.runs(step) {
				continue
			}
			done[i], grew = true, true
			order = append(order, i)
			for _, name := range step.OutputMap {
				f.ready[name] = true
			}
		}
	}
	return order
}

// step adds a step that calls the model with that configuration.
func (b *ensembleBuilder) step(step *modelpb.ModelEnsembling_Step, m *modelpb.ModelConfig) {
	if m.MaxBatchSize != 0 && m.MaxBatchSize < b.cfg.MaxBatchSize {
		b.p.add("ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
			b.cfg.Name, b.cfg.MaxBatchSize, m.Name, m.MaxBatchSize)
	}
	s := Step{
		Model: step.ModelName, Version: step.ModelVersion, Batching: m.MaxBatchSize > 0,
		Decoupled: m.GetModelTransactionPolicy().GetDecoupled(),
	}
	for _, name := range slices.Sorted(maps.Keys(step.InputMap)) {
		if !slices.ContainsFunc(m.Input, func(in *modelpb.ModelInput) bool { return in.Name == name }) {
			b.p.add("in ensemble %s, ensemble tensor %s is mapping to non-existing input %s in model %s", b.cfg.Name, step.InputMap[name], name, m.Name)
		}
	}
	for _, in := range m.Input {
		name, mapped := step.InputMap[in.Name]
		if !mapped {
			if !in.Optional {
				b.p.add("in ensemble %s, input %s in model %s is not mapped to any ensemble tensors", b.cfg.Name, in.Name, m.Name)
			}
			continue
		}
		n := b.node(name, m, in.DataType, in.Dims)
		b.e.Readers[n.index] = append(b.e.Readers[n.index], Reader{len(b.e.Steps), len(s.Inputs)})
		s.Inputs = append(s.Inputs, Link{Name: in.Name, Tensor: n.index, Dims: in.Dims})
	}
	for _, name := range slices.Sorted(maps.Keys(step.OutputMap)) {
		i := slices.IndexFunc(m.Output, func(out *modelpb.ModelOutput) bool { return out.Name == name })
		if i < 0 {
			b.p.add("in ensemble %s, ensemble tensor %s is mapped from non-existing output %s in model %s", b.cfg.Name, step.OutputMap[name], name, m.Name)
			continue
		}
		n := b.node(step.OutputMap[name], m, m.Output[i].DataType, m.Output[i].Dims)
		s.Outputs = append(s.Outputs, Link{Name: name, Tensor: n.index, Dims: m.Output[i].Dims})
	}
	s.Whole = len(s.Outputs) == len(m.Output)
	b.e.Steps = append(b.e.Steps, s)
}

// level finds out which tensors come from the same responses, and refuses steps
// that would have to join others.
func (b *ensembleBuilder) level() {
	b.e.Level = make([]int, len(b.e.Tensors))
	last := 0
	for _, s := range b.e.Steps {
		if len(s.Inputs) == 0 {
			continue // an error is reported
		}
		level := b.e.Level[s.Inputs[0].Tensor]
		for _, in := range s.Inputs {
			if b.e.Level[in.Tensor] != level {
				b.mixed(s)
				break
			}
		}
		if s.Decoupled {
			last++
			level = last
		}
		for _, out := range s.Outputs {
			b.e.Level[out.Tensor] = level
		}
	}
	for i, out := range b.e.Outputs {
		level := b.e.Level[out.Tensor]
		if i == 0 {
			b.e.Answers = level
		} else if level != b.e.Answers {
			b.p.add("in ensemble %s, step of model '%s' receives inputs originated from different decoupled models", b.cfg.Name, b.cfg.Name)
			return
		}
	}
}

// mixed reports a step whose inputs come from different decoupled models. Like
// Triton it names the model that is first to use the step's output.
func (b *ensembleBuilder) mixed(s Step) {
	owner := s.Model
	if len(s.Outputs) > 0 {
		owner = b.nodes[b.e.Tensors[s.Outputs[0].Tensor]].owner
	}
	b.p.add("in ensemble %s, step of model '%s' receives inputs originated from different decoupled models", b.cfg.Name, owner)
}
