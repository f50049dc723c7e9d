package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
)

func TestUnactedNamesWhatIsSet(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", `name: "m" max_batch_size: 8 instance_group { count: 2 }`, nil},
		{"a message", `sequence_batching { }`, []string{"sequence_batching"}},
		{"a switch that is on", `response_cache { enable: true }`, []string{"response_cache.enable"}},
		{"a switch that is off", `response_cache { enable: false } model_transaction_policy { }`, nil},
		{"only the groups that set it", `instance_group [ { }, { passive: true host_policy: "x" } ]`, []string{"instance_group[1].host_policy"}},
		{"a part of a message that is acted on", `optimization { graph { level: 1 } cuda { graphs: true } }`, []string{"optimization.cuda"}},
		{"a map", `cc_model_filenames { key: "a" value: "b" }`, []string{"cc_model_filenames"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Unacted(config(t, c.text))); diff != "" {
				t.Errorf("Unacted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryFieldIsActedOnOrNamed keeps a new field from being dropped without
// a word: it must be acted on, and listed here, or be in the table.
func TestEveryFieldIsActedOnOrNamed(t *testing.T) {
	acted := []string{
		"name", "platform", "backend", "version_policy", "max_batch_size", "default_model_filename", "parameters",
		"input.name", "input.data_type", "input.format", "input.dims", "input.reshape", "input.optional", "input.allow_ragged_batch",
		"output.name", "output.data_type", "output.dims", "output.reshape", "output.label_filename",
		"batch_input", "batch_output",
		"instance_group.name", "instance_group.kind", "instance_group.count", "instance_group.gpus", "instance_group.rate_limiter", "instance_group.passive",
		"optimization.graph", "optimization.execution_accelerators", "dynamic_batching",
		"metric_tags", "model_metrics", "model_transaction_policy.decoupled",
		// Where tensors lie is the backend's business here; the fields are
		// always set, because their default is to be on.
		"optimization.input_pinned_memory", "optimization.output_pinned_memory",
		// Validate refuses these.
		"input.is_shape_tensor", "input.is_non_linear_format_io", "output.is_shape_tensor", "output.is_non_linear_format_io",
	}
	var walk func(desc protoreflect.MessageDescriptor, prefix string)
	walk = func(desc protoreflect.MessageDescriptor, prefix string) {
		for i := range desc.Fields().Len() {
			fd := desc.Fields().Get(i)
			path := prefix + fd.TextName()
			inside := func(p string) bool { return strings.HasPrefix(p, path+".") }
			a, u := slices.Contains(acted, path), slices.Contains(unacted, path)
			switch {
			case a && u:
				t.Errorf("%s: got it in both tables, want it in one", path)
			case a || u:
			case fd.Message() != nil && !fd.IsMap() && (slices.ContainsFunc(acted, inside) || slices.ContainsFunc(unacted, inside)):
				walk(fd.Message(), path+".")
			default:
				t.Errorf("%s: got it in no table, want it acted on or named", path)
			}
		}
	}
	walk((&modelpb.ModelConfig{}).ProtoReflect().Descriptor(), "")
}
