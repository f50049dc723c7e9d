package model

import (
	"fmt"
	"math"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// Complete fills in what cfg leaves out from the model's graph: the batch size,
// the inputs and outputs, and the scheduler. A configuration that lists both
// inputs and outputs is not changed. The notes say what was filled in, for the
// log. DefaultMaxBatch is the batch size of a model that can be batched and
// whose configuration sets none.
func Complete(cfg *modelpb.ModelConfig, g Graph, defaultMaxBatch int) (notes []string, err error) {
	inputs := len(cfg.Input)+len(cfg.BatchInput) > 0
	outputs := len(cfg.Output) > 0
	if inputs && outputs {
		return nil, nil
	}
	if notes, err = completeBatching(cfg, g, defaultMaxBatch); err != nil {
		return nil, err
	}
	if !inputs {
		for _, t := range g.Inputs {
			dims, reshape := configDims(t, cfg.MaxBatchSize > 0)
			cfg.Input = append(cfg.Input, &modelpb.ModelInput{
				Name: t.Name, DataType: modelpb.DataType(t.Type), Dims: dims, Reshape: reshape,
			})
		}
		notes = append(notes, fmt.Sprintf("inputs taken from the model file: %d", len(g.Inputs)))
	}
	if !outputs {
		for _, t := range g.Outputs {
			dims, reshape := configDims(t, cfg.MaxBatchSize > 0)
			cfg.Output = append(cfg.Output, &modelpb.ModelOutput{
				Name: t.Name, DataType: modelpb.DataType(t.Type), Dims: dims, Reshape: reshape,
			})
		}
		notes = append(notes, fmt.Sprintf("outputs taken from the model file: %d", len(g.Outputs)))
	}
	return notes, nil
}

// completeBatching sets the batch size and turns dynamic batching on where the
// graph allows it.
func completeBatching(cfg *modelpb.ModelConfig, g Graph, defaultMaxBatch int) (notes []string, err error) {
	if !g.batchable() {
		if cfg.MaxBatchSize != 0 {
			return nil, status.Errorf(status.InvalidArgument,
				"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", cfg.Name)
		}
		return nil, nil
	}
	if cfg.MaxBatchSize == 0 {
		cfg.MaxBatchSize = int32(min(max(defaultMaxBatch, 0), math.MaxInt32))
		notes = append(notes, fmt.Sprintf(
			"max_batch_size set to %d, because the model can be batched and its configuration does not say how far", cfg.MaxBatchSize))
	}
	if cfg.MaxBatchSize > 1 && cfg.SchedulingChoice == nil {
		cfg.SchedulingChoice = &modelpb.ModelConfig_DynamicBatching{DynamicBatching: &modelpb.ModelDynamicBatching{}}
		notes = append(notes, "dynamic_batching turned on, because the model can be batched")
	}
	return notes, nil
}

// batchable reports whether every tensor has a first dimension of any size.
func (g Graph) batchable() bool {
	for _, side := range [][]GraphTensor{g.Inputs, g.Outputs} {
		for _, t := range side {
			if len(t.Dims) == 0 || t.Dims[0] != -1 {
				return false
			}
		}
	}
	return true
}

// configDims returns the shape of t in a configuration. A tensor with only the
// batch dimension has one element per row for the client and no such dimension
// for the backend; a scalar without batching is one element.
func configDims(t GraphTensor, batching bool) ([]int64, *modelpb.ModelTensorReshape) {
	dims := t.Dims
	if batching {
		dims = dims[1:]
	}
	if len(dims) > 0 {
		return append([]int64(nil), dims...), nil
	}
	if batching {
		return []int64{1}, &modelpb.ModelTensorReshape{}
	}
	return []int64{1}, nil
}
