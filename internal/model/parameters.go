package model

import (
	"fmt"
	"strings"

	"shoal/internal/model/modelpb"
)

// ParamGather is the parameter of a model's configuration that says whether the
// leader of a batch lets requests that are about to arrive join it (yes, the
// default), or whether a batch is exactly what waits when an instance is free, as
// in Triton (no). It means something to models with dynamic_batching only.
const ParamGather = "SHOAL_GATHER"

// ServerParameter reports whether a parameter is for the server and not for the
// model's backend.
func ServerParameter(name string) bool { return name == ParamGather }

// Gathers returns what ParamGather says of a valid configuration.
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
