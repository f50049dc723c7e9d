package model

import (
	"fmt"

	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// described is what inputs and outputs of a configuration have in common.
type described interface {
	GetName() string
	GetDataType() modelpb.DataType
	GetDims() []int64
	GetReshape() *modelpb.ModelTensorReshape
	GetIsShapeTensor() bool
	GetIsNonLinearFormatIo() bool
}

func validateTensors(p *problems, cfg *modelpb.ModelConfig) {
	seen := map[string]bool{}
	for _, in := range cfg.Input {
		validateTensor(p, cfg, "input", in, seen)
		if in.Format != modelpb.ModelInput_FORMAT_NONE && len(in.Dims) != 3 {
			p.add("model input NHWC/NCHW require 3 dims for %s", cfg.Name)
		}
	}
	seen = map[string]bool{}
	for _, out := range cfg.Output {
		validateTensor(p, cfg, "output", out, seen)
	}
}

// validateTensor checks one input or output; seen are the names of those
// before it.
func validateTensor(p *problems, cfg *modelpb.ModelConfig, side string, t described, seen map[string]bool) {
	if t.GetName() == "" {
		p.add("model %s must specify 'name' for %s", side, cfg.Name)
		return // without a name the error could not say which one
	}
	prefix := fmt.Sprintf("model %s '%s'", side, t.GetName())
	if seen[t.GetName()] {
		p.add("%s is specified more than once for %s", prefix, cfg.Name)
	}
	seen[t.GetName()] = true
	if _, known := modelpb.DataType_name[int32(t.GetDataType())]; !known || t.GetDataType() == modelpb.DataType_TYPE_INVALID {
		p.add("%s must specify 'data_type' for %s", prefix, cfg.Name)
	}
	if len(t.GetDims()) == 0 {
		p.add("%s must specify 'dims' for %s", prefix, cfg.Name)
	} else {
		validateShapes(p, cfg, prefix, t)
	}
	if cfg.Platform == "tensorrt_plan" {
		return
	}
	if t.GetIsShapeTensor() {
		p.add("shape tensors are only supported for TensorRT platform for %s", cfg.Name)
	}
	if t.GetIsNonLinearFormatIo() {
		p.add("Non-linear IO format is only supported for the TensorRT platform for %s", cfg.Name)
	}
}

func validateShapes(p *problems, cfg *modelpb.ModelConfig, prefix string, t described) {
	const integers = "must be integer >= 1, or -1 to indicate a variable-size dimension"
	good := true
	if !validDims(t.GetDims()) {
		p.add("%s dimension %s for %s", prefix, integers, cfg.Name)
		good = false
	}
	reshape := t.GetReshape()
	if reshape == nil {
		return
	}
	if len(reshape.Shape) == 0 && cfg.MaxBatchSize == 0 {
		p.add("%s cannot have empty reshape for non-batching model as scalar tensors are not supported for %s", prefix, cfg.Name)
		good = false
	}
	if !validDims(reshape.Shape) {
		p.add("%s reshape dimensions %s for %s", prefix, integers, cfg.Name)
		good = false
	}
	if !good {
		return
	}
	if why := compareReshape(t.GetDims(), reshape.Shape); why != "" {
		p.add("%s has different %s for dims and reshape for %s", prefix, why, cfg.Name)
	}
}

func validDims(dims []int64) bool {
	for _, d := range dims {
		if d < 1 && d != -1 {
			return false
		}
	}
	return true
}

// compareReshape describes how dims and shape differ: in the number of their
// variable dimensions, or in the size of a part between two of them.
func compareReshape(dims, shape []int64) string {
	a, b := fixedParts(dims), fixedParts(shape)
	if len(a) != len(b) {
		if len(a) == 1 || len(b) == 1 { // only one of them is variable
			return "size"
		}
		return "number of variable-size dimensions"
	}
	for i := range a {
		n, ok := a[i].Elements()
		m, ok2 := b[i].Elements()
		if n != m || !ok || !ok2 {
			return "size"
		}
	}
	return ""
}

// fixedParts cuts a shape at its variable dimensions.
func fixedParts(dims []int64) []tensor.Shape {
	parts := []tensor.Shape{{}}
	for _, d := range dims {
		if d == -1 {
			parts = append(parts, tensor.Shape{})
		} else {
			last := len(parts) - 1
			parts[last] = append(parts[last], d)
		}
	}
	return parts
}

// validateBatchIO checks that batch inputs and outputs refer to the model's
// tensors.
func validateBatchIO(p *problems, cfg *modelpb.ModelConfig) {
	inputs, outputs := map[string]bool{}, map[string]bool{}
	for _, in := range cfg.Input {
		inputs[in.Name] = true
	}
	for _, out := range cfg.Output {
		outputs[out.Name] = true
	}
	sources := func(side, kind string, names []string) {
		if len(names) != 1 {
			p.add("batch %s kind '%s' expects 1 source input, got %d for %s", side, kind, len(names), cfg.Name)
		}
		for _, name := range names {
			if !inputs[name] {
				p.add("unknown source input name '%s' for %s", name, cfg.Name)
			}
		}
	}
	for _, b := range cfg.BatchInput {
		if _, known := modelpb.BatchInput_Kind_name[int32(b.Kind)]; !known {
			p.add("unknown batch input kind '%s' for %s", b.Kind, cfg.Name)
		}
		sources("input", b.Kind.String(), b.SourceInput)
		if b.DataType != modelpb.DataType_TYPE_INT32 && b.DataType != modelpb.DataType_TYPE_FP32 {
			p.add("batch input data type must be TYPE_INT32 or TYPE_FP32 for %s", cfg.Name)
		}
	}
	for _, b := range cfg.BatchOutput {
		if _, known := modelpb.BatchOutput_Kind_name[int32(b.Kind)]; !known {
			p.add("unknown batch output kind '%s' for %s", b.Kind, cfg.Name)
		}
		sources("output", b.Kind.String(), b.SourceInput)
		seen := map[string]bool{}
		for _, name := range b.TargetName {
			if !outputs[name] {
				p.add("unknown target output name '%s' for %s", name, cfg.Name)
			} else if seen[name] {
				p.add("target output name '%s' can only be specified once for %s", name, cfg.Name)
			}
			seen[name] = true
		}
	}
}
