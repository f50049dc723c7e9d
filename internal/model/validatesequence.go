package model

import "shoal/internal/model/modelpb"

func validateSequence(p *problems, cfg *modelpb.ModelConfig, sb *modelpb.ModelSequenceBatching) {
	if cfg.GetResponseCache().GetEnable() {
		p.add("Response Cache does not currently support model %s with sequence batching scheduler. "+
			"Please disable the response cache.", cfg.Name)
	}
	validateControls(p, cfg.Name, sb.ControlInput)
	if oldest := sb.GetOldest(); oldest != nil {
		validatePreferred(p, cfg, "sequence batching preferred batch size", oldest.PreferredBatchSize)
	}
	if direct := sb.GetDirect(); direct != nil {
		if u := direct.MinimumSlotUtilization; !(u >= 0 && u <= 1) { // or NaN
			p.add("sequence batching minimum slot utilization must be in range (0.0, 1.0] for %s", cfg.Name)
		}
	}
}

// validateControls checks that every kind and every tensor is controlled once
// and that each control says how.
func validateControls(p *problems, model string, inputs []*modelpb.ModelSequenceBatching_ControlInput) {
	tensors := map[string]bool{}
	kinds := map[modelpb.ModelSequenceBatching_Control_Kind]int{}
	for _, in := range inputs {
		switch {
		case in.Name == "":
			p.add("sequence batching control tensor must have a name for %s", model)
		case tensors[in.Name]:
			p.add("sequence batching control tensor '%s' is specified for multiple control kinds for %s", in.Name, model)
		}
		tensors[in.Name] = true
		for _, c := range in.Control {
			if kinds[c.Kind]++; kinds[c.Kind] == 2 {
				p.add("sequence batching specifies multiple %s tensors for %s", c.Kind, model)
			}
			validateControl(p, model, c)
		}
	}
}

func validateControl(p *problems, model string, c *modelpb.ModelSequenceBatching_Control) {
	values := []struct {
		field string
		count int
	}{
		{"int32_false_true", len(c.Int32FalseTrue)},
		{"fp32_false_true", len(c.Fp32FalseTrue)},
		{"bool_false_true", len(c.BoolFalseTrue)},
	}
	given := 0
	for _, v := range values {
		if v.count > 0 {
			given++
		}
	}
	if c.Kind == modelpb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
		if given > 0 {
			p.add("sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", c.Kind, model)
		}
		validateCorrelationType(p, model, c)
		return
	}
	switch {
	case given == 0:
		p.add("sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", c.Kind, model)
	case given > 1:
		p.add("sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for %s for %s", c.Kind, model)
	}
	for _, v := range values {
		if v.count != 0 && v.count != 2 {
			p.add("sequence batching control '%s' must have exactly 2 entries for %s for %s", v.field, c.Kind, model)
		}
	}
}

func validateCorrelationType(p *problems, model string, c *modelpb.ModelSequenceBatching_Control) {
	switch c.DataType {
	case modelpb.DataType_TYPE_UINT64, modelpb.DataType_TYPE_INT64, modelpb.DataType_TYPE_UINT32,
		modelpb.DataType_TYPE_INT32, modelpb.DataType_TYPE_STRING:
	default:
		p.add("unexpected data type for control %s for %s. Allowed data types are TYPE_UINT64, TYPE_INT64, "+
			"TYPE_UINT32, TYPE_INT32 and TYPE_STRING", c.Kind, model)
	}
}
