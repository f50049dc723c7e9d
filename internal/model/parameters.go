package model

import (
	"fmt"
	"strings"

	"shoal/internal/model/modelpb"
)

// ParamGather is the model parameter that says whether the leader of a batch
// lets requests that are about to arrive join it (yes, the default), or whether
// a batch is exactly the requests that wait when an instance is free, as in
// Triton (no). It has an effect only on models with dynamic_batching.
const ParamGather = "SHOAL_GATHER"

// ParamBatching is the model parameter that chooses the batching policy:
// "triton" for exactly Triton's rules, "auto" for the policy that learns what
// batches cost and needs no settings. It has an effect only on models with
// dynamic_batching.
const ParamBatching = "SHOAL_BATCHING"

// A Batching is a batching policy by its name.
type Batching string

// The policies.
const (
	BatchingDefault Batching = ""
	BatchingTriton  Batching = "triton"
	BatchingAuto    Batching = "auto"
)

// BatchingOf returns the value of ParamBatching in a valid configuration.
func BatchingOf(cfg *modelpb.ModelConfig) Batching {
	b, _ := batching(cfg)
	return b
}

func batching(cfg *modelpb.ModelConfig) (Batching, error) {
	p, given := cfg.GetParameters()[ParamBatching]
	switch b := Batching(strings.ToLower(p.GetStringValue())); {
	case !given:
		return BatchingDefault, nil
	case b == BatchingTriton, b == BatchingAuto:
		return b, nil
	}
	return BatchingDefault, fmt.Errorf("parameters: %s is %q: want %s or %s", ParamBatching, p.GetStringValue(), BatchingTriton, BatchingAuto)
}

// ServerParameter reports whether a parameter is for the server and not for the
// model's backend.
func ServerParameter(name string) bool { return name == ParamGather || name == ParamBatching }

// Gathers returns the value of ParamGather in a valid configuration.
func Gathers(cfg *modelpb.ModelConfig) bool {
	yes, err := gathers(cfg)
	return yes || err != nil
}

func gathers(cfg *modelpb.ModelConfig) (bool, error) {
	p, given := cfg.GetParameters()[ParamGather]
	switch value := p.GetStringValue(); {
	case !given || strings.EqualFold(value, "yes"):
		return true, nil
	case strings.EqualFold(value, "no"):
		return false, nil
	default:
		return false, fmt.Errorf("parameters: %s is %q: want yes or no", ParamGather, value)
	}
}
