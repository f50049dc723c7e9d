package usermetric

import (
	"fmt"
	"strings"

	"shoal/internal/status"
)

// A Kind is the kind of a metric.
type Kind string

// The kinds, by the names that workers send.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// An Act is an operation on a metric.
type Act string

// The acts, by the names that workers send.
const (
	Announce  Act = "family"  // create the family, without a metric yet
	Declare   Act = "declare" // create the metric
	Increment Act = "increment"
	Set       Act = "set"
	Observe   Act = "observe"
	Value     Act = "value"
	Forget    Act = "forget" // its declarer no longer needs the metric
	Leave     Act = "leave"  // its announcer no longer needs the family
)

// allowed lists the acts of a kind, besides Announce and Declare.
var allowed = map[Kind][]Act{
	Counter:   {Increment, Value},
	Gauge:     {Increment, Set, Value},
	Histogram: {Observe},
}

// An Op is one operation on one metric. Workers send its JSON form.
type Op struct {
	Owner   string            `json:"-"` // who counts: the model's name and version
	Act     Act               `json:"op"`
	Family  string            `json:"family"`
	Kind    Kind              `json:"kind"`
	Help    string            `json:"help"`
	Labels  map[string]string `json:"labels"`
	Buckets []float64         `json:"buckets"` // upper bounds, ascending; for histograms
	Value   float64           `json:"value"`
}

// reserved are the prefixes of the server's own metrics.
var reserved = []string{"nv_inference_", "nv_cpu_", "nv_gpu_", "nv_energy_", "nv_model_", "nv_pinned_", "nv_cache_", "shoal_", "go_", "process_"}

func (op Op) check() error {
	if err := op.checkNames(); err != nil {
		return status.Errorf(status.InvalidArgument, "%v", err)
	}
	acts, known := allowed[op.Kind]
	if !known {
		return status.Errorf(status.InvalidArgument, "a metric's kind is %q, want counter, gauge or histogram", op.Kind)
	}
	switch op.Act {
	case Announce, Forget, Leave:
		return nil
	}
	if op.Act != Declare && !has(acts, op.Act) {
		return status.Errorf(status.Unsupported, "%s is not for a %s such as '%s'", op.Act, op.Kind, op.Family)
	}
	if !finite(op.Value) {
		return status.Errorf(status.InvalidArgument, "the value for '%s' is %v, want a number", op.Family, op.Value)
	}
	return op.checkBuckets()
}

func (op Op) checkNames() error {
	if !isName(op.Family, true) {
		return fmt.Errorf("%q is not a metric's name; use letters, digits, _ and :, and no digit first", op.Family)
	}
	for _, p := range reserved {
		if strings.HasPrefix(op.Family, p) {
			return fmt.Errorf("metric '%s': names that begin with %s are the server's own", op.Family, p)
		}
	}
	for name := range op.Labels {
		if !isName(name, false) || strings.HasPrefix(name, "__") || (op.Kind == Histogram && name == "le") {
			return fmt.Errorf("metric '%s': %q is not a label's name; use letters, digits and _, and no digit first", op.Family, name)
		}
	}
	return nil
}

func (op Op) checkBuckets() error {
	if op.Kind != Histogram {
		return nil
	}
	if op.Buckets == nil {
		return status.Errorf(status.InvalidArgument, "histogram '%s' has no buckets; give their upper bounds", op.Family)
	}
	for i, b := range op.Buckets {
		if !finite(b) || (i > 0 && b <= op.Buckets[i-1]) {
			return status.Errorf(status.InvalidArgument, "histogram '%s': the buckets %v do not ascend", op.Family, op.Buckets)
		}
	}
	return nil
}

func has(acts []Act, a Act) bool {
	for _, b := range acts {
		if a == b {
			return true
		}
	}
	return false
}

// isName reports whether s is a valid Prometheus name; only metrics may have
// colons.
func isName(s string, colon bool) bool {
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == ':' && colon:
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}
