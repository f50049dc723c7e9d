package model

import (
	"maps"
	"slices"

	"shoal/internal/model/modelpb"
)

// validateEnsemble checks what can be known of an ensemble without its models:
// its fields, and whether every tensor is written and read.
func validateEnsemble(p *problems, cfg *modelpb.ModelConfig) {
	if cfg.Platform != ensemblePlatform {
		p.add("ensemble scheduling cannot be set for model '%s' whose platform is not %s", cfg.Name, ensemblePlatform)
	}
	if len(cfg.InstanceGroup) > 0 {
		p.add("instance group should not be specified for ensemble '%s'", cfg.Name)
	}
	if cfg.Optimization != nil {
		p.add("optimization should not be specified for ensemble '%s'", cfg.Name)
	}
	if len(cfg.ModelWarmup) > 0 {
		p.add("model_warmup can not be specified for ensemble '%s'", cfg.Name)
	}
	steps := cfg.GetEnsembleScheduling().Step
	if len(steps) == 0 {
		p.add("must specify 'step' for ensemble '%s'", cfg.Name)
		return
	}
	complete := true
	for i, step := range steps {
		for _, f := range []struct {
			name  string
			empty bool
		}{
			{"model_name", step.ModelName == ""},
			{"input_map", len(step.InputMap) == 0},
			{"output_map", len(step.OutputMap) == 0},
		} {
			if f.empty {
				p.add("must specify '%s' in step %d of ensemble '%s'", f.name, i, cfg.Name)
				complete = false
			}
		}
	}
	if complete {
		validateFlow(p, cfg)
	}
}

// A flow is how tensors get through an ensemble, before its models are known.
type flow struct {
	writer map[string]int   // the step that writes a tensor
	reads  map[string][]int // the steps that read it
	ready  map[string]bool  // it is there once everything that can run has run
}

// validateFlow checks that every tensor is written once and read.
func validateFlow(p *problems, cfg *modelpb.ModelConfig) {
	steps := cfg.GetEnsembleScheduling().Step
	f := flow{writer: make(map[string]int), reads: make(map[string][]int), ready: make(map[string]bool)}
	for _, in := range cfg.Input {
		f.ready[in.Name] = true
	}
	for i, step := range steps {
		for _, output := range slices.Sorted(maps.Keys(step.OutputMap)) {
			name := step.OutputMap[output]
			if _, written := f.writer[name]; written {
				p.add("ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step %d", name, cfg.Name, i)
			} else if f.ready[name] {
				p.add("ensemble input '%s' for ensemble '%s' is also written by step %d, model '%s'", name, cfg.Name, i, step.ModelName)
			}
			f.writer[name] = i
		}
		for _, input := range slices.Sorted(maps.Keys(step.InputMap)) {
			f.reads[step.InputMap[input]] = append(f.reads[step.InputMap[input]], i)
		}
	}
	f.run(steps)

	sound := true
	for _, in := range cfg.Input {
		if len(f.reads[in.Name]) == 0 {
			p.add("ensemble input '%s' for ensemble %s' is not used", in.Name, cfg.Name)
		}
	}
	outputs := make(map[string]bool)
	for _, out := range cfg.Output {
		outputs[out.Name] = true
		_, written := f.writer[out.Name]
		switch {
		case !written && len(f.reads[out.Name]) == 0:
			p.add("ensemble output '%s' for ensemble %s' is not used", out.Name, cfg.Name)
			sound = false
		case !f.ready[out.Name]:
			text := ""
			if source := f.obstacle(steps, out.Name); source != out.Name {
				text = ": at least one of its depending tensors, '" + source + "', is not connected"
			}
			p.add("output '%s' for ensemble '%s' is not written%s", out.Name, cfg.Name, text)
			sound = false
		}
	}
	if !sound {
		return // what follows from these faults would hide them
	}
	names := make(map[string]bool)
	for name := range f.writer {
		names[name] = true
	}
	for name := range f.reads {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !outputs[name] && (!f.ready[name] || len(f.reads[name]) == 0) {
			p.add("ensemble tensor '%s' is unused in ensemble '%s'", name, cfg.Name)
		}
	}
}

// run finds out which tensors can be there.
func (f *flow) run(steps []*modelpb.ModelEnsembling_Step) {
	for grew := true; grew; {
		grew = false
		for _, step := range steps {
			if !f.runs(step) {
				continue
			}
			for _, name := range step.OutputMap {
				grew = grew || !f.ready[name]
				f.ready[name] = true
			}
		}
	}
}

// runs reports whether all inputs of a step can be there.
func (f *flow) runs(step *modelpb.ModelEnsembling_Step) bool {
	for _, name := range step.InputMap {
		if !f.ready[name] {
			return false
		}
	}
	return true
}

// obstacle returns the tensor that keeps another from being written: the first
// on the way back from it that no step before writes.
func (f *flow) obstacle(steps []*modelpb.ModelEnsembling_Step, name string) string {
	seen := make(map[string]bool)
	for {
		i, written := f.writer[name]
		if !written {
			return name
		}
		next := ""
		for _, input := range slices.Sorted(maps.Keys(steps[i].InputMap)) {
			if from := steps[i].InputMap[input]; !f.ready[from] && !seen[from] {
				next = from
				break
			}
		}
		if next == "" {
			return name
		}
		seen[next] = true
		name = next
	}
}
