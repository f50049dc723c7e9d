package model

import (
	"fmt"
	"strings"

	"shoal/internal/model/modelpb"
)

// ParamBatching is the parameter of a model's configuration that chooses the
// policy by which requests are batched: "triton" for exactly Triton's rules, "auto"
// for the policy that learns what batches cost and needs no settings, "fill" for
// batches that wait up to the delay to be full, though only for callers that are
// expected back. Without it the fields of dynamic_batching choose.
const ParamBatching = "SHOAL_BATCHING"

// A Batching is a batching policy by its name.
type Batching string

// The policies. As a server's choice BatchingNone leaves it to the models.
const (
	BatchingNone   Batching = ""
	BatchingTriton Batching = "triton"
	BatchingAuto   Batching = "auto"
	BatchingFill   Batching = "fill" // of models only: its delay is one model's
)

// BatchingOf returns the policy for a valid configuration on a server that has
// made a choice for all models, or none; BatchingNone when requests are not
// batched. Triton's rules are for configurations that ask for something that only
// these have: a delay, or preferred sizes other than the one that Normalize fills
// in. Priorities, queue policies and order hold under both policies.
func BatchingOf(cfg *modelpb.ModelConfig, server Batching) Batching {
	db := cfg.GetDynamicBatching()
	asked, _ := batching(cfg)
	batches := cfg.GetMaxBatchSize() > 1 && (db != nil || cfg.GetSchedulingChoice() == nil)
	switch {
	case server == BatchingAuto && batches && (asked == BatchingNone || asked == BatchingAuto):
		return BatchingAuto
	case db == nil:
		return BatchingNone
	case server == BatchingTriton || !batches:
		return BatchingTriton
	case asked != BatchingNone:
		return asked
	case db.GetMaxQueueDelayMicroseconds() > 0 || prefersLess(db, cfg.GetMaxBatchSize()):
		return BatchingTriton
	}
	return BatchingAuto
}

// prefersLess reports whether a size other than the largest is preferred.
func prefersLess(db *modelpb.ModelDynamicBatching, most int32) bool {
	for _, size := range db.GetPreferredBatchSize() {
		if size != most {
			return true
		}
	}
	return false
}

// ParseBatching returns the policy of a name, which is not empty.
func ParseBatching(name string) (Batching, error) {
	switch b := Batching(strings.ToLower(name)); b {
	case BatchingTriton, BatchingAuto:
		return b, nil
	}
	return BatchingNone, fmt.Errorf("is %q: want %s or %s", name, BatchingTriton, BatchingAuto)
}

func batching(cfg *modelpb.ModelConfig) (Batching, error) {
	p, given := cfg.GetParameters()[ParamBatching]
	if !given {
		return BatchingNone, nil
	}
	name := p.GetStringValue()
	if strings.EqualFold(name, string(BatchingFill)) {
		return BatchingFill, nil
	}
	b, err := ParseBatching(name)
	if err != nil {
		return b, fmt.Errorf("parameters: %s %w, or %s", ParamBatching, err, BatchingFill)
	}
	return b, nil
}

// ServerParameter reports whether a parameter is for the server and not for the
// model's backend.
func ServerParameter(name string) bool { return name == ParamBatching }
