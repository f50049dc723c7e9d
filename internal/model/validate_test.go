package model

import "testing"

// onnx is a configuration without fault; each case adds one to it.
const onnx = `name: "m" backend: "onnxruntime" platform: "onnxruntime_onnx" `

func TestValidate(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing is wrong", onnx + `max_batch_size: 8`, ""},
		{"no name", `backend: "python"`, "model configuration must specify 'name'"},
		{"neither platform nor backend", `name: "m"`, "must specify 'platform' or 'backend' for 'm'"},
		{"a platform that is not known", `name: "m" platform: "caffe"`, "unexpected platform type 'caffe' for m"},
		{"a platform of another backend", `name: "m" platform: "tensorrt_plan" backend: "onnxruntime"`, "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime"},
		{"any platform of a backend that is not known", `name: "m" platform: "x" backend: "mine"`, ""},
		{"both platforms of one backend", `name: "m" platform: "torch_aoti" backend: "pytorch"`, ""},
		{"a negative batch size", onnx + `max_batch_size: -1`, "'max_batch_size' must be non-negative value for m"},

		{"a preferred size of zero", onnx + `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 0 ] }`, "dynamic batching preferred size must be positive for m"},
		{"a preferred size that is too large", onnx + `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 9 ] }`, "dynamic batching preferred size must be <= max batch size for m"},
		{"a batching policy", onnx + `parameters { key: "SHOAL_BATCHING" value { string_value: "Auto" } }`, ""},
		{"an unknown batching policy", onnx + `parameters { key: "SHOAL_BATCHING" value { string_value: "fast" } }`, `parameters: SHOAL_BATCHING is "fast": want triton or auto, or fill for m`},
		{"a batching policy without a value", onnx + `parameters { key: "SHOAL_BATCHING" value { } }`, `parameters: SHOAL_BATCHING is "": want triton or auto, or fill for m`},
		{"no default priority", onnx + `dynamic_batching { priority_levels: 3 }`, "default priority level must be in range [1, 3] for m"},
		{"a default priority that is too large", onnx + `dynamic_batching { priority_levels: 3 default_priority_level: 4 }`, "default priority level must be in range [1, 3] for m"},
		{"a policy for a level that is not there", onnx + `dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 4 } }`, "priority queue policy must have priority level in range [1, 3] for m"},
		{"more instances than memory", onnx + `instance_group { count: 2147483647 kind: KIND_CPU }`, "instance group m_0 of model m has count 2147483647, must be <= 4096"},
		{"order and priorities", onnx + `dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }`, "Only one priority level is allowed when 'preserve_ordering' is true for m"},
		{"order and delay by default", onnx + `dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }`, "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"},
		{"order and delay of a level", onnx + `dynamic_batching { preserve_ordering: true priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }`, "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"},
		{"order and a delay that never comes", onnx + `dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }`, ""},

		{"sequences and the cache", onnx + `sequence_batching { } response_cache { enable: true }`, "Response Cache does not currently support model m with sequence batching scheduler. Please disable the response cache."},
		{"decoupled and the cache", onnx + `model_transaction_policy { decoupled: true } response_cache { enable: true }`, "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable the response cache."},
		{"a sequence size of zero", onnx + `max_batch_size: 8 sequence_batching { oldest { preferred_batch_size: 0 } }`, "sequence batching preferred batch size must be positive for m"},
		{"a sequence size that is too large", onnx + `max_batch_size: 8 sequence_batching { oldest { preferred_batch_size: 9 } }`, "sequence batching preferred batch size must be <= max batch size for m"},
		{"too much utilisation", onnx + `sequence_batching { direct { minimum_slot_utilization: 1.5 } }`, "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
		{"utilisation that is no number", onnx + `sequence_batching { direct { minimum_slot_utilization: nan } }`, "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
		{"two tensors of one control", onnx + `sequence_batching { control_input [ { name: "a" control { int32_false_true: [ 0, 1 ] } }, { name: "b" control { bool_false_true: [ false, true ] } } ] }`, "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m"},
		{"one tensor for two controls", onnx + `sequence_batching { control_input [ { name: "a" }, { name: "a" } ] }`, "sequence batching control tensor 'a' is specified for multiple control kinds for m"},
		{"a control without values", onnx + `sequence_batching { control_input { name: "a" control { } } }`, "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_START for m"},
		{"a control with values of two types", onnx + `sequence_batching { control_input { name: "a" control { int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ] } } }`, "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for CONTROL_SEQUENCE_START for m"},
		{"a control with one value", onnx + `sequence_batching { control_input { name: "a" control { kind: CONTROL_SEQUENCE_END int32_false_true: 0 } } }`, "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for m"},
		{"a control without a name", onnx + `sequence_batching { control_input { control { int32_false_true: [ 0, 1 ] } } }`, "sequence batching control tensor must have a name for m"},
		{"a correlation id with values", onnx + `sequence_batching { control_input { name: "a" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ] } } }`, "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_CORRID for m"},
		{"a correlation id of a wrong type", onnx + `sequence_batching { control_input { name: "a" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }`, "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"},

		{"an ensemble with a backend", `name: "m" platform: "ensemble" backend: "python"`, "Ensemble model 'm' must have platform type 'ensemble' and empty backend type"},
		{"an ensemble without steps", `name: "m" platform: "ensemble" ensemble_scheduling { }`, "must specify 'step' for ensemble 'm'"},
		{"an ensemble without scheduling", `name: "m" platform: "ensemble"`, "ensemble scheduling must be set for ensemble m whose platform is ensemble"},
		{"steps of a model that is no ensemble", onnx + `optimization { } ensemble_scheduling { step { model_name: "a" input_map { } output_map { } } }`, "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble; optimization should not be specified for ensemble 'm'; ensemble tensor '' is unused in ensemble 'm'"},
		{"an ensemble with what its models have", `name: "m" platform: "ensemble" ensemble_scheduling { step { model_name: "a" input_map { } output_map { } } } instance_group { } model_warmup { }`, "instance group should not be specified for ensemble 'm'; model_warmup can not be specified for ensemble 'm'; ensemble tensor '' is unused in ensemble 'm'"},
		{"an empty step", `name: "m" platform: "ensemble" ensemble_scheduling { step { } }`, "must specify 'model_name' in step 0 of ensemble 'm'; must specify 'input_map' in step 0 of ensemble 'm'; must specify 'output_map' in step 0 of ensemble 'm'"},

		{"a metric without a family", onnx + `model_metrics { metric_control { metric_identifier { } histogram_options { buckets: 1 } } }`, "metric identifier must specify non-empty 'family'"},
		{"a metric without anything", onnx + `model_metrics { metric_control { } }`, "metric control must specify 'metric_identifier'; metric control must specify 'histogram_options'"},
		{"a histogram without buckets", onnx + `model_metrics { metric_control { metric_identifier { family: "x" } histogram_options { } } }`, "histogram options must specify non-empty 'buckets'"},

		{"several faults, all named", `name: "m" platform: "caffe" max_batch_size: -1 input { }`, "unexpected platform type 'caffe' for m; 'max_batch_size' must be non-negative value for m; model input must specify 'name' for m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.text)
			Normalize(cfg, NormalizeOptions{})
			checkError(t, Validate(cfg, NormalizeOptions{}), c.want)
		})
	}
}

func TestValidateTensors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing is wrong", `input { name: "a" data_type: TYPE_FP32 dims: [ -1, 3 ] }`, ""},
		{"an input without a name", `input { data_type: TYPE_FP32 dims: 1 }`, "model input must specify 'name' for m"},
		{"an output without a name", `output { data_type: TYPE_FP32 dims: 1 }`, "model output must specify 'name' for m"},
		{"no data type", `input { name: "a" dims: 1 }`, "model input 'a' must specify 'data_type' for m"},
		{"a data type that is not known", `input { name: "a" data_type: 99 dims: 1 }`, "model input 'a' must specify 'data_type' for m"},
		{"no dims", `output { name: "a" data_type: TYPE_FP32 }`, "model output 'a' must specify 'dims' for m"},
		{"neither", `output { name: "a" }`, "model output 'a' must specify 'data_type' for m; model output 'a' must specify 'dims' for m"},
		{"a dimension of zero", `input { name: "a" data_type: TYPE_FP32 dims: [ 1, 0 ] }`, "model input 'a' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m"},
		{"a negative dimension", `input { name: "a" data_type: TYPE_FP32 dims: -2 }`, "model input 'a' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m"},
		{"the same name twice", `input [ { name: "a" data_type: TYPE_FP32 dims: 1 }, { name: "a" data_type: TYPE_FP32 dims: 1 } ]`, "model input 'a' is specified more than once for m"},
		{"an input and an output of one name", `input { name: "a" data_type: TYPE_FP32 dims: 1 } output { name: "a" data_type: TYPE_FP32 dims: 1 }`, ""},

		{"a reshape of the same size", `input { name: "a" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 6, 1 ] } }`, ""},
		{"a reshape of another size", `input { name: "a" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: 5 } }`, "model input 'a' has different size for dims and reshape for m"},
		{"a reshape with a dimension of zero", `input { name: "a" data_type: TYPE_FP32 dims: 2 reshape { shape: 0 } }`, "model input 'a' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m"},
		{"a reshape between variable dimensions", `input { name: "a" data_type: TYPE_FP32 dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] } }`, ""},
		{"a reshape that moves elements over a variable dimension", `input { name: "a" data_type: TYPE_FP32 dims: [ 2, -1, 3 ] reshape { shape: [ 3, -1, 2 ] } }`, "model input 'a' has different size for dims and reshape for m"},
		{"a reshape with fewer variable dimensions", `input { name: "a" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: -1 } }`, "model input 'a' has different number of variable-size dimensions for dims and reshape for m"},
		{"a reshape that fixes what is variable", `input { name: "a" data_type: TYPE_FP32 dims: -1 reshape { shape: 4 } }`, "model input 'a' has different size for dims and reshape for m"},
		{"a reshape too large to count", `input { name: "a" data_type: TYPE_FP32 dims: [ 4294967296, 4294967296 ] reshape { shape: [ 4294967296, 4294967296 ] } }`, "model input 'a' has different size for dims and reshape for m"},
		{"an empty reshape without batching", `input { name: "a" data_type: TYPE_FP32 dims: 1 reshape { } }`, "model input 'a' cannot have empty reshape for non-batching model as scalar tensors are not supported for m"},
		{"an empty reshape with batching", `max_batch_size: 2 input { name: "a" data_type: TYPE_FP32 dims: 1 reshape { } }`, ""},
		{"an empty reshape of more than one element", `max_batch_size: 2 input { name: "a" data_type: TYPE_FP32 dims: 2 reshape { } }`, "model input 'a' has different size for dims and reshape for m"},

		{"an image of two dimensions", `input { name: "a" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 2, 2 ] }`, "model input NHWC/NCHW require 3 dims for m"},
		{"a shape tensor", `output { name: "a" data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }`, "shape tensors are only supported for TensorRT platform for m"},
		{"a tensor of a GPU's own format", `input { name: "a" data_type: TYPE_FP32 dims: 1 is_non_linear_format_io: true }`, "Non-linear IO format is only supported for the TensorRT platform for m"},

		{"a batch input of two sources", `batch_input { data_type: TYPE_FP32 source_input: [ "a", "b" ] }`, "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 2 for m; unknown source input name 'a' for m; unknown source input name 'b' for m"},
		{"a batch input of a wrong type", `input { name: "a" data_type: TYPE_FP32 dims: 1 } batch_input { data_type: TYPE_FP64 source_input: "a" }`, "batch input data type must be TYPE_INT32 or TYPE_FP32 for m"},
		{"a batch output without its output", `input { name: "a" data_type: TYPE_FP32 dims: 1 } batch_output { target_name: "x" source_input: "a" }`, "unknown target output name 'x' for m"},
		{"a batch output without a source", `output { name: "x" data_type: TYPE_FP32 dims: 1 } batch_output { target_name: [ "x", "x" ] }`, "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m; target output name 'x' can only be specified once for m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, onnx+c.text)
			Normalize(cfg, NormalizeOptions{})
			checkError(t, Validate(cfg, NormalizeOptions{}), c.want)
		})
	}
}

func TestValidateGroups(t *testing.T) {
	for _, c := range []struct {
		name, text string
		gpus       int
		want       string
	}{
		{"a CPU group with GPUs", `instance_group { kind: KIND_CPU gpus: 0 }`, 1, "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"},
		{"a model's own placement with GPUs", `instance_group { kind: KIND_MODEL gpus: 0 }`, 1, "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs"},
		{"a GPU group without GPUs in the machine", `instance_group { kind: KIND_GPU }`, 0, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"},
		{"a listed GPU without GPUs in the machine", `instance_group { kind: KIND_GPU gpus: 0 }`, 0, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"},
		{"a GPU that is not there", `instance_group { name: "g" kind: KIND_GPU gpus: [ 0, 2 ] }`, 2, "instance group g of model m specifies invalid or unsupported gpu id 2. GPUs available are: 0, 1"},
		{"a GPU group on all GPUs", `instance_group { kind: KIND_GPU }`, 2, ""},
		{"a kind that is not known", `instance_group { kind: 9 }`, 0, "instance group m_0 of model m has unexpected kind 9"},
		{"a profile", `instance_group { kind: KIND_CPU profile: "0" }`, 0, "instance group m_0 of model m and platform onnxruntime_onnx specifies profile field which is only supported for TensorRT models"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, onnx+c.text)
			machine := NormalizeOptions{GPUs: c.gpus}
			Normalize(cfg, machine)
			checkError(t, Validate(cfg, machine), c.want)
		})
	}
}
