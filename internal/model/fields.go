package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// How a set field is treated.
type fate uint8

const (
	acted   fate = iota // Shoal acts on it, or Validate or the backend refuses it
	ignored             // only speed or placement would change: the log says so
	refused             // answers would change: the model does not load
)

// A field is a decision about a field of ModelConfig and everything in it.
type field struct {
	path string
	fate fate
	text string // of an ignored field, what does not happen; of a refused one, why and what to do
	// unless, when not nil, accepts values that change nothing.
	unless func(*modelpb.ModelConfig) bool
}

// fields has a decision about every field. A test compares it with ModelConfig:
// a new field needs a decision here.
var fields = []field{
	{path: "name"},
	{path: "platform"},
	{path: "backend"},
	{
		path: "runtime", fate: refused, unless: usualRuntime,
		text: "it names other code to run the model with than Shoal's own backend; remove it if the model runs with that",
	},
	{path: "version_policy.latest.num_versions"},
	{path: "version_policy.all"},
	{path: "version_policy.specific.versions"},
	{path: "max_batch_size"},

	{path: "input.name"},
	{path: "input.data_type"},
	{path: "input.format"},
	{path: "input.dims"},
	{path: "input.reshape.shape"},
	{path: "input.is_shape_tensor"}, // Validate refuses it
	{path: "input.allow_ragged_batch"},
	{path: "input.optional"},
	{path: "input.is_non_linear_format_io"}, // Validate refuses it
	{path: "output.name"},
	{path: "output.data_type"},
	{path: "output.dims"},
	{path: "output.reshape.shape"},
	{path: "output.label_filename"},
	{path: "output.is_shape_tensor"},         // Validate refuses it
	{path: "output.is_non_linear_format_io"}, // Validate refuses it

	// Validate refuses unknown kinds; a test of the ONNX backend covers the
	// known ones. Python models see each request by itself, also in Triton.
	{path: "batch_input.kind"},
	{path: "batch_input.target_name"},
	{path: "batch_input.data_type"},
	{path: "batch_input.source_input"},
	{path: "batch_output.target_name"},
	{path: "batch_output.kind"},
	{path: "batch_output.source_input"},

	{path: "optimization.graph.level"},
	{path: "optimization.priority", fate: ignored, text: "models run at one priority"},
	{path: "optimization.cuda.graphs"}, // on unless the parameter enable_cuda_graph is 0
	{path: "optimization.cuda.busy_wait_events"},
	{path: "optimization.cuda.graph_spec.batch_size"},
	{path: "optimization.cuda.graph_spec.input", fate: ignored, text: "CUDA graphs are recorded for models with fixed shapes"},
	{path: "optimization.cuda.graph_spec.graph_lower_bound", fate: ignored, text: "a batch is padded to the next recorded size"},
	{path: "optimization.cuda.output_copy_stream"}, // large outputs always have one
	{path: "optimization.execution_accelerators.gpu_execution_accelerator.name"},
	{path: "optimization.execution_accelerators.gpu_execution_accelerator.parameters"},
	{path: "optimization.execution_accelerators.cpu_execution_accelerator.name"},
	{path: "optimization.execution_accelerators.cpu_execution_accelerator.parameters"},
	// The backend decides where tensors are; these fields are always set,
	// because their default is on.
	{path: "optimization.input_pinned_memory.enable"},
	{path: "optimization.output_pinned_memory.enable"},
	{path: "optimization.gather_kernel_buffer_threshold", fate: ignored, text: "inputs are gathered without a kernel"},
	{path: "optimization.eager_batching", fate: ignored, text: "inputs are gathered when their instance is free or one batch ahead"},

	{path: "dynamic_batching.preferred_batch_size"},
	{path: "dynamic_batching.max_queue_delay_microseconds"},
	{path: "dynamic_batching.preserve_ordering"},
	{path: "dynamic_batching.priority_levels"},
	{path: "dynamic_batching.default_priority_level"},
	{path: "dynamic_batching.default_queue_policy.timeout_action"},
	{path: "dynamic_batching.default_queue_policy.default_timeout_microseconds"},
	{path: "dynamic_batching.default_queue_policy.allow_timeout_override"},
	{path: "dynamic_batching.default_queue_policy.max_queue_size"},
	{path: "dynamic_batching.priority_queue_policy"},
	{
		path: "sequence_batching", fate: refused,
		text: "Shoal keeps no state between the requests of a sequence yet, so that every request would be answered as if it were the first; " +
			"remove it if the model needs no state",
	},
	{path: "ensemble_scheduling.step.model_name"},
	{path: "ensemble_scheduling.step.model_version"},
	{path: "ensemble_scheduling.step.input_map"},
	{path: "ensemble_scheduling.step.output_map"},
	{path: "ensemble_scheduling.step.model_namespace"}, // an answer of Triton's has it; a name is enough here
	{path: "ensemble_scheduling.max_inflight_requests"},

	{path: "instance_group.name"},
	{path: "instance_group.kind"},
	{path: "instance_group.count"},
	{path: "instance_group.rate_limiter.resources.name"},
	{path: "instance_group.rate_limiter.resources.global"},
	{path: "instance_group.rate_limiter.resources.count"},
	{path: "instance_group.rate_limiter.priority"},
	{path: "instance_group.gpus"},
	{path: "instance_group.secondary_devices", fate: ignored, text: "instances use no secondary devices"},
	{path: "instance_group.profile"}, // Validate refuses it
	{path: "instance_group.passive"},
	{path: "instance_group.host_policy", fate: ignored, text: "instances are not bound to cores or memory"},

	{path: "default_model_filename"},
	{path: "cc_model_filenames", fate: ignored, text: "the model's file does not depend on the GPU"},
	{path: "metric_tags"},
	{path: "parameters"},
	{path: "model_warmup.name"},
	{path: "model_warmup.batch_size"},
	{path: "model_warmup.inputs"},
	{path: "model_warmup.count"},
	{path: "model_operations.op_library_filename"},
	{path: "model_transaction_policy.decoupled"},
	{
		path: "model_repository_agents", fate: refused,
		text: "Shoal runs no repository agents, which may check, decrypt or replace a model's files; do their work beforehand and remove it",
	},
	{path: "response_cache.enable"},
	{path: "model_metrics.metric_control.metric_identifier.family"},
	{path: "model_metrics.metric_control.histogram_options.buckets"},
}

// usualRuntime reports whether a configuration names the library of Triton's
// backend of that name, which Shoal's own backend replaces.
func usualRuntime(cfg *modelpb.ModelConfig) bool {
	return cfg.GetBackend() != "" && cfg.GetRuntime() == "libtriton_"+cfg.GetBackend()+".so"
}

// Ignored returns the fields that cfg sets and that Shoal does not act on, each
// with what does not happen. Pass the configuration as its author wrote it:
// later steps fill in fields that nobody set.
func Ignored(cfg *modelpb.ModelConfig) []string { return withFate(cfg, ignored) }

// Refuse returns an error of code Unsupported when cfg sets fields that Shoal
// does not support and without which answers would be wrong.
func Refuse(cfg *modelpb.ModelConfig) error {
	list := withFate(cfg, refused)
	if len(list) == 0 {
		return nil
	}
	return status.Errorf(status.Unsupported, "model '%s' would not be served as its configuration says: %s", cfg.GetName(), strings.Join(list, "; "))
}

// withFate returns the fields with that treatment that cfg sets, each with its
// text.
func withFate(cfg *modelpb.ModelConfig, what fate) []string {
	var list []string
	for i := range fields {
		f := &fields[i]
		if f.fate != what || f.unless != nil && f.unless(cfg) {
			continue
		}
		for _, place := range appendSet(nil, cfg.ProtoReflect(), "", strings.Split(f.path, ".")) {
			list = append(list, place+": "+f.text)
		}
	}
	return list
}

// appendSet appends the paths in m where the field at path is set.
func appendSet(set []string, m protoreflect.Message, prefix string, path []string) []string {
	fd := m.Descriptor().Fields().ByTextName(path[0])
	if fd == nil {
		panic("BUG: " + string(m.Descriptor().Name()) + " has no field " + path[0])
	}
	here := prefix + path[0]
	switch {
	case !m.Has(fd):
	case len(path) == 1:
		set = append(set, here)
	case fd.IsList():
		list := m.Get(fd).List()
		for i := range list.Len() {
			set = appendSet(set, list.Get(i).Message(), fmt.Sprintf("%s[%d].", here, i), path[1:])
		}
	default:
		set = appendSet(set, m.Get(fd).Message(), here+".", path[1:])
	}
	return set
}
