package model

import (
	"fmt"
	"slices"
	"strings"

	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// CheckGraph reports all differences between a complete configuration and the
// model's graph at once; the error has code InvalidArgument.
func CheckGraph(cfg *modelpb.ModelConfig, g Graph) error {
	var p problems
	c := checker{cfg: cfg, p: &p}
	if want, have := requiredInputs(cfg), len(g.Inputs); want != have {
		p.add("unable to load model '%s', configuration expects %d inputs, model provides %d", cfg.Name, want, have)
	}
	known := slices.Concat(g.Inputs, g.Overridable)
	for _, in := range cfg.Input {
		if t := c.find("input", in.Name, in.DataType, known); t != nil {
			c.input(in, *t, g)
		}
	}
	c.batchInputs(known)
	for _, out := range cfg.Output {
		if t := c.find("output", out.Name, out.DataType, g.Outputs); t != nil && !scattered(cfg, out.Name) {
			c.shape(*t, backendDims(out), true)
		}
	}
	c.batchOutputs()
	return p.err(true)
}

// requiredInputs returns how many of the graph's inputs the configuration
// accounts for: its own and those that the server makes.
func requiredInputs(cfg *modelpb.ModelConfig) int {
	n := 0
	for _, in := range cfg.Input {
		if !in.Optional {
			n++
		}
	}
	for _, b := range cfg.BatchInput {
		n += len(b.TargetName)
	}
	for _, in := range cfg.GetSequenceBatching().GetControlInput() {
		n += len(in.Control)
	}
	return n + len(cfg.GetSequenceBatching().GetState())
}

// scattered reports whether a batch output splits that output, whose shape then
// differs from the model's.
func scattered(cfg *modelpb.ModelConfig, output string) bool {
	return slices.ContainsFunc(cfg.BatchOutput, func(b *modelpb.BatchOutput) bool {
		return slices.Contains(b.TargetName, output)
	})
}

// backendDims returns the shape that the backend sees, without the batch
// dimension.
func backendDims(t described) tensor.Shape {
	if r := t.GetReshape(); r != nil {
		return r.Shape
	}
	return t.GetDims()
}

type checker struct {
	cfg *modelpb.ModelConfig
	p   *problems
}

// find returns the graph's tensor of that name and checks its type.
func (c checker) find(side, name string, typ modelpb.DataType, known []GraphTensor) *GraphTensor {
	i := slices.IndexFunc(known, func(k GraphTensor) bool { return k.Name == name })
	if i < 0 {
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = k.Name
		}
		slices.Sort(names)
		c.p.add("unexpected inference %s '%s', allowed %ss are: %s", side, name, side, strings.Join(names, ", "))
		return nil
	}
	if want := tensor.Type(typ); want != known[i].Type {
		c.p.add("unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			c.cfg.Name, want.ConfigName(), side, name, known[i].Type.ConfigName())
	}
	return &known[i]
}

func (c checker) input(in *modelpb.ModelInput, t GraphTensor, g Graph) {
	if in.Optional && slices.ContainsFunc(g.Inputs, func(t GraphTensor) bool { return t.Name == in.Name }) {
		c.p.add("unable to load model '%s', optional input '%s' has no value in the model to stand for one that a request leaves out; "+
			"give it an initializer of the same name, or make it required", c.cfg.Name, in.Name)
	}
	if !in.AllowRaggedBatch {
		c.shape(t, backendDims(in), false)
		return
	}
	if in.Optional {
		c.p.add("unable to load model '%s', configuration expects model provides input with shape [-1] for ragged input '%s', "+
			"which is not supported for optional input", c.cfg.Name, in.Name)
	}
	if !t.Dims.Equal(tensor.Shape{-1}) {
		c.p.add("unable to load model '%s', configuration expects model provides input with shape [-1]  for ragged input '%s', "+
			"model provides %s", c.cfg.Name, in.Name, t.Dims)
	}
}

// shape compares the graph's shape with the configured one. An input may fix a
// dimension that the model leaves variable; an output is compared exactly.
func (c checker) shape(t GraphTensor, dims tensor.Shape, exact bool) {
	batching := c.cfg.MaxBatchSize > 0
	if batching && (len(t.Dims) == 0 || t.Dims[0] != -1) {
		c.p.add("model '%s', tensor '%s': for the model to support batching the shape should have at least 1 dimension "+
			"and the first dimension must be -1; but shape expected by the model is %s", c.cfg.Name, t.Name, t.Dims)
		return
	}
	if len(t.Dims) == 0 {
		c.scalar(t, dims)
		return
	}
	full := dims
	if batching {
		full = append(tensor.Shape{-1}, dims...)
	}
	if exact && t.Dims.Equal(full) || !exact && t.Dims.Accepts(full) {
		return
	}
	how := fmt.Sprintf("(shape %s)", full)
	if batching {
		how = fmt.Sprintf("(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "+
			"making complete shape %s)", full)
	}
	c.p.add("model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions %s",
		c.cfg.Name, t.Name, len(t.Dims), t.Dims, len(full), how)
}

// scalar checks the dims of a tensor that has none in the graph.
func (c checker) scalar(t GraphTensor, dims tensor.Shape) {
	for _, d := range dims {
		if d != 1 {
			c.p.add("unable to load model '%s', scalar tensor '%s', should only provide 1 in the model configuration when the "+
				"model doesn't support batching. Model configuration provided: %s.", c.cfg.Name, t.Name, dims)
			return
		}
	}
}
