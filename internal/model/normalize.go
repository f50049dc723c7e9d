package model

import (
	"fmt"

	"shoal/internal/model/modelpb"
)

// NormalizeOptions describe the machine.
type NormalizeOptions struct {
	// GPUs is the number of GPUs; their ids are 0 to GPUs-1.
	GPUs int
	// WhyNoGPUs is why there are none, for errors; empty when nobody knows.
	WhyNoGPUs string
}

// has reports whether there is a GPU of that id.
func (o NormalizeOptions) has(gpu int32) bool { return gpu >= 0 && int(gpu) < o.GPUs }

// defaultSequenceIdle is how long a sequence may be idle, in microseconds.
const defaultSequenceIdle = 1_000_000

// Normalize fills in the defaults that a loaded model's configuration shows.
// Call it after the backend was inferred and has completed cfg. It may be
// applied again.
func Normalize(cfg *modelpb.ModelConfig, opt NormalizeOptions) {
	if cfg.VersionPolicy == nil {
		cfg.VersionPolicy = &modelpb.ModelVersionPolicy{PolicyChoice: &modelpb.ModelVersionPolicy_Latest_{
			Latest: &modelpb.ModelVersionPolicy_Latest{NumVersions: 1},
		}}
	}
	if db := cfg.GetDynamicBatching(); db != nil {
		db.PreferredBatchSize = preferred(db.PreferredBatchSize, cfg.MaxBatchSize)
	}
	if sb := cfg.GetSequenceBatching(); sb != nil {
		if sb.MaxSequenceIdleMicroseconds == 0 {
			sb.MaxSequenceIdleMicroseconds = defaultSequenceIdle
		}
		if oldest := sb.GetOldest(); oldest != nil {
			oldest.PreferredBatchSize = preferred(oldest.PreferredBatchSize, cfg.MaxBatchSize)
		}
	}
	if cfg.GetEnsembleScheduling() != nil {
		return // its models have the other settings
	}
	normalizePinned(cfg)
	normalizeGroups(cfg, opt)
}

// preferred returns the sizes, or the largest allowed one when none is given.
func preferred(sizes []int32, maxBatch int32) []int32 {
	if len(sizes) == 0 && maxBatch > 0 {
		return []int32{maxBatch}
	}
	return sizes
}

func normalizePinned(cfg *modelpb.ModelConfig) {
	if cfg.Optimization == nil {
		cfg.Optimization = &modelpb.ModelOptimizationPolicy{}
	}
	o := cfg.Optimization
	if o.InputPinnedMemory == nil {
		o.InputPinnedMemory = &modelpb.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
	}
	if o.OutputPinnedMemory == nil {
		o.OutputPinnedMemory = &modelpb.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
	}
}

func normalizeGroups(cfg *modelpb.ModelConfig, opt NormalizeOptions) {
	if len(cfg.InstanceGroup) == 0 {
		cfg.InstanceGroup = []*modelpb.ModelInstanceGroup{{Name: cfg.Name}}
	}
	for i, g := range cfg.InstanceGroup {
		if g.Name == "" {
			g.Name = fmt.Sprintf("%s_%d", cfg.Name, i)
		}
		if g.Kind == modelpb.ModelInstanceGroup_KIND_AUTO {
			g.Kind = resolveKind(g, opt)
		}
		if g.Count < 1 {
			g.Count = defaultCount(g.Kind, cfg.Backend)
		}
		if g.Kind == modelpb.ModelInstanceGroup_KIND_GPU && len(g.Gpus) == 0 {
			for gpu := range opt.GPUs {
				g.Gpus = append(g.Gpus, int32(gpu))
			}
		}
	}
}

// resolveKind returns the meaning of KIND_AUTO: GPUs when there are some and
// all that the group lists exist, else the CPU.
func resolveKind(g *modelpb.ModelInstanceGroup, opt NormalizeOptions) modelpb.ModelInstanceGroup_Kind {
	if opt.GPUs == 0 {
		return modelpb.ModelInstanceGroup_KIND_CPU
	}
	for _, gpu := range g.Gpus {
		if !opt.has(gpu) {
			return modelpb.ModelInstanceGroup_KIND_CPU
		}
	}
	return modelpb.ModelInstanceGroup_KIND_GPU
}

// defaultCount returns the instances of a group without a count. The backends
// with two have two in Triton.
func defaultCount(kind modelpb.ModelInstanceGroup_Kind, backend string) int32 {
	if kind == modelpb.ModelInstanceGroup_KIND_CPU && (backend == "onnxruntime" || backend == "tensorflow") {
		return 2
	}
	return 1
}
