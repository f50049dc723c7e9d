package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"shoal/internal/model/modelpb"
)

// Validate reports all errors in a normalised configuration at once; the error
// has code InvalidArgument. The options are those of Normalize.
func Validate(cfg *modelpb.ModelConfig, opt NormalizeOptions) error {
	var p problems
	validatePlatform(&p, cfg)
	if cfg.MaxBatchSize < 0 {
		p.add("'max_batch_size' must be non-negative value for %s", cfg.Name)
	}
	if db := cfg.GetDynamicBatching(); db != nil {
		validateDynamic(&p, cfg, db)
	}
	if _, err := batching(cfg); err != nil {
		p.add("%v for %s", err, cfg.Name)
	}
	if sb := cfg.GetSequenceBatching(); sb != nil {
		validateSequence(&p, cfg, sb)
	}
	if cfg.GetModelTransactionPolicy().GetDecoupled() && cfg.GetResponseCache().GetEnable() {
		p.add("Response Cache does not currently support model %s with 'decoupled' transaction policy. "+
			"Please disable the response cache.", cfg.Name)
	}
	validateMetrics(&p, cfg)
	if cfg.GetEnsembleScheduling() != nil {
		validateEnsemble(&p, cfg)
	}
	early := len(p)
	validateTensors(&p, cfg)
	validateBatchIO(&p, cfg)
	if cfg.GetEnsembleScheduling() == nil {
		validateGroups(&p, cfg, opt)
	}
	return p.err(early == 0)
}

func validatePlatform(p *problems, cfg *modelpb.ModelConfig) {
	if cfg.Name == "" {
		p.add("model configuration must specify 'name'")
	}
	switch {
	case cfg.Platform == "" && cfg.Backend == "":
		p.add("must specify 'platform' or 'backend' for '%s'", cfg.Name)
	case cfg.Backend == "" && cfg.Platform != ensemblePlatform:
		p.add("unexpected platform type '%s' for %s", cfg.Platform, cfg.Name)
	case cfg.Backend != "" && cfg.Platform == ensemblePlatform:
		p.add("Ensemble model '%s' must have platform type '%s' and empty backend type", cfg.Name, ensemblePlatform)
	case !pairs(cfg.Backend, cfg.Platform):
		p.add("unexpected 'platform' and 'backend' pair, got:%s, %s", cfg.Platform, cfg.Backend)
	case cfg.Platform == ensemblePlatform && cfg.GetEnsembleScheduling() == nil:
		p.add("ensemble scheduling must be set for ensemble %s whose platform is %s", cfg.Name, ensemblePlatform)
	}
}

func validateDynamic(p *problems, cfg *modelpb.ModelConfig, db *modelpb.ModelDynamicBatching) {
	validatePreferred(p, cfg, "dynamic batching preferred size", db.PreferredBatchSize)
	if levels := db.PriorityLevels; levels != 0 {
		if db.DefaultPriorityLevel == 0 || db.DefaultPriorityLevel > levels {
			p.add("default priority level must be in range [1, %d] for %s", levels, cfg.Name)
		}
		for _, level := range slices.Sorted(maps.Keys(db.PriorityQueuePolicy)) {
			if level == 0 || level > levels {
				p.add("priority queue policy must have priority level in range [1, %d] for %s", levels, cfg.Name)
			}
		}
	}
	if !db.PreserveOrdering {
		return
	}
	if db.PriorityLevels > 1 {
		p.add("Only one priority level is allowed when 'preserve_ordering' is true for %s", cfg.Name)
	}
	delays := delaysOnTimeout(db.DefaultQueuePolicy)
	for _, policy := range db.PriorityQueuePolicy {
		delays = delays || delaysOnTimeout(policy)
	}
	if delays {
		p.add("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s", cfg.Name)
	}
}

// delaysOnTimeout reports whether the policy lets later requests overtake.
func delaysOnTimeout(q *modelpb.ModelQueuePolicy) bool {
	return q.GetDefaultTimeoutMicroseconds() != 0 && q.GetTimeoutAction() == modelpb.ModelQueuePolicy_DELAY
}

// validatePreferred checks preferred sizes; what is their name in messages.
func validatePreferred(p *problems, cfg *modelpb.ModelConfig, what string, sizes []int32) {
	var small, large bool
	for _, size := range sizes {
		small = small || size <= 0
		large = large || size > max(0, cfg.MaxBatchSize)
	}
	if small {
		p.add("%s must be positive for %s", what, cfg.Name)
	}
	if large {
		p.add("%s must be <= max batch size for %s", what, cfg.Name)
	}
}

func validateMetrics(p *problems, cfg *modelpb.ModelConfig) {
	for _, c := range cfg.GetModelMetrics().GetMetricControl() {
		switch {
		case c.MetricIdentifier == nil:
			p.add("metric control must specify 'metric_identifier'")
		case c.MetricIdentifier.Family == "":
			p.add("metric identifier must specify non-empty 'family'")
		}
		switch {
		case c.GetHistogramOptions() == nil:
			p.add("metric control must specify 'histogram_options'")
		case len(c.GetHistogramOptions().Buckets) == 0:
			p.add("histogram options must specify non-empty 'buckets'")
		}
	}
}

// maxInstances is the largest count of a group. Each instance has its own
// memory, so a typing error could use up the machine's.
const maxInstances = 4096

func validateGroups(p *problems, cfg *modelpb.ModelConfig, opt NormalizeOptions) {
	for _, g := range cfg.InstanceGroup {
		prefix := fmt.Sprintf("instance group %s of model %s", g.Name, cfg.Name)
		if g.Count > maxInstances {
			p.add("%s has count %d, must be <= %d", prefix, g.Count, maxInstances)
		}
		switch g.Kind {
		case modelpb.ModelInstanceGroup_KIND_GPU:
			validateGPUs(p, prefix, g, opt)
		case modelpb.ModelInstanceGroup_KIND_CPU, modelpb.ModelInstanceGroup_KIND_MODEL:
			if len(g.Gpus) > 0 {
				p.add("%s has kind %s but specifies one or more GPUs", prefix, g.Kind)
			}
		default:
			p.add("%s has unexpected kind %s", prefix, g.Kind)
		}
		if len(g.Profile) > 0 && cfg.Platform != "tensorrt_plan" {
			p.add("%s and platform %s specifies profile field which is only supported for TensorRT models", prefix, cfg.Platform)
		}
	}
}

func validateGPUs(p *problems, prefix string, g *modelpb.ModelInstanceGroup, opt NormalizeOptions) {
	if opt.GPUs == 0 {
		why := ""
		if opt.WhyNoGPUs != "" {
			why = ": " + opt.WhyNoGPUs
		}
		p.add("%s has kind KIND_GPU but no GPUs are available%s", prefix, why)
		return
	}
	if len(g.Gpus) == 0 {
		p.add("%s has kind KIND_GPU but specifies no GPUs", prefix)
	}
	for _, gpu := range g.Gpus {
		if !opt.has(gpu) {
			var ids []string
			for id := range opt.GPUs {
				ids = append(ids, fmt.Sprint(id))
			}
			p.add("%s specifies invalid or unsupported gpu id %d. GPUs available are: %s", prefix, gpu, strings.Join(ids, ", "))
		}
	}
}
