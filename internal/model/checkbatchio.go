package model

import (
	"slices"

	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// batchInputs checks the inputs that the server makes from the shapes of a
// batch against the graph. Validate has checked that their sources exist.
func (c checker) batchInputs(known []GraphTensor) {
	fed := map[string]bool{}
	for _, in := range c.cfg.Input {
		fed[in.Name] = true
	}
	for _, b := range c.cfg.BatchInput {
		if len(b.TargetName) == 0 {
			c.p.add("batch input kind '%s' must specify 'target_name' for %s", b.Kind, c.cfg.Name)
		}
		source := c.source("batch_input", b.SourceInput)
		for _, name := range b.TargetName {
			if fed[name] {
				c.p.add("unable to load model '%s', input '%s' is fed more than once: it is the target of a batch_input and an input or another target",
					c.cfg.Name, name)
			}
			fed[name] = true
			if t := c.find("input", name, b.DataType, known); t != nil && source != nil {
				c.batchInput(b.Kind, *t, source)
			}
		}
	}
}

// batchInput compares the graph's shape with that of the tensor that the server
// makes.
func (c checker) batchInput(kind modelpb.BatchInput_Kind, t GraphTensor, source *modelpb.ModelInput) {
	made := tensor.Shape{-1}
	if kind == modelpb.BatchInput_BATCH_ITEM_SHAPE {
		made = append(made, int64(len(backendDims(source))))
	}
	fits := len(t.Dims) == len(made)
	for i := 1; fits && i < len(made); i++ { // how many there will be is unknown
		fits = t.Dims[i] == -1 || t.Dims[i] == made[i]
	}
	if !fits {
		c.p.add("model '%s', tensor '%s': the model expects %d dimensions (shape %s) but batch input kind '%s' of input '%s' makes %d dimensions (shape %s)",
			c.cfg.Name, t.Name, len(t.Dims), t.Dims, kind, source.Name, len(made), made)
	}
}

// batchOutputs checks that the shapes of scattered outputs follow from their
// sources'.
func (c checker) batchOutputs() {
	seen := map[string]bool{}
	for _, b := range c.cfg.BatchOutput {
		source := c.source("batch_output", b.SourceInput)
		for _, name := range b.TargetName {
			if seen[name] {
				c.p.add("unable to load model '%s', output '%s' is the target of more than one batch_output", c.cfg.Name, name)
			}
			seen[name] = true
			i := slices.IndexFunc(c.cfg.Output, func(out *modelpb.ModelOutput) bool { return out.Name == name })
			if i >= 0 && source != nil {
				c.batchOutput(c.cfg.Output[i], source)
			}
		}
	}
}

// batchOutput checks that each variable dimension of an output has one of its
// source at the same position.
func (c checker) batchOutput(out *modelpb.ModelOutput, source *modelpb.ModelInput) {
	dims, from := backendDims(out), backendDims(source)
	if lastIndex(dims, -1) >= len(from) {
		c.p.add("model '%s', tensor '%s': shape %s has a variable-size dimension beyond those of %s, the shape of '%s', its source in batch_output",
			c.cfg.Name, out.Name, dims, from, source.Name)
	}
}

func lastIndex(dims tensor.Shape, d int64) int {
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] == d {
			return i
		}
	}
	return -1
}

// source returns the input that a batch input or output is made from, nil when
// there is none.
func (c checker) source(field string, names []string) *modelpb.ModelInput {
	if len(names) != 1 {
		return nil
	}
	i := slices.IndexFunc(c.cfg.Input, func(in *modelpb.ModelInput) bool { return in.Name == names[0] })
	if i < 0 {
		return nil
	}
	in := c.cfg.Input[i]
	if in.Optional {
		c.p.add("unable to load model '%s', input '%s' is the source of a %s and so cannot be optional", c.cfg.Name, in.Name, field)
	}
	return in
}
