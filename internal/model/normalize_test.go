package model

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// TestLoadedConfigurationsAreAsRecorded takes configurations through all steps
// of a load and compares with what the original server showed of them.
func TestLoadedConfigurationsAreAsRecorded(t *testing.T) {
	row := tensor.Shape{-1, 16}
	addSub := Graph{
		Inputs:  []GraphTensor{{"INPUT1", tensor.FP32, row}, {"INPUT0", tensor.FP32, row}},
		Outputs: []GraphTensor{{"OUTPUT1", tensor.FP32, row}, {"OUTPUT0", tensor.FP32, row}},
	}
	for _, c := range []struct {
		name, text, file string
		graph            Graph
		golden           string
	}{
		{
			"a complete configuration",
			readText(t, "testdata/config/simple.pbtxt"), "model.onnx",
			Graph{},
			"simple",
		},
		{
			"no configuration but the model's name",
			`name: "auto_add_sub"`, "model.onnx", addSub, "autocompleted",
		},
		{
			"dynamic batching with its own sizes",
			`name: "mlp_dyn" platform: "onnxruntime_onnx" max_batch_size: 64
			 input { name: "INPUT" data_type: TYPE_FP32 dims: 256 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 }
			 dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
			 instance_group { count: 1 kind: KIND_CPU }
			 parameters [ { key: "intra_op_thread_count" value { string_value: "1" } }, { key: "inter_op_thread_count" value { string_value: "1" } } ]`,
			"model.onnx",
			Graph{},
			"dynamic",
		},
		{
			"a Python model",
			`name: "py_identity" backend: "python" max_batch_size: 64
			 input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
			 instance_group { kind: KIND_CPU count: 1 }`,
			"model.py",
			Graph{},
			"python",
		},
		{
			"dynamic batching without sizes and no groups",
			`name: "simple" backend: "onnxruntime" max_batch_size: 4
			 input [ { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }, { name: "INPUT1" data_type: TYPE_INT32 dims: 16 } ]
			 output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }, { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 } ]
			 dynamic_batching { max_queue_delay_microseconds: 500 }`,
			"model.onnx",
			Graph{},
			"override",
		},
		{
			"an ensemble",
			readText(t, "testdata/config/ensemble.pbtxt") + ` model_transaction_policy { decoupled: false }`, "",
			Graph{},
			"ensemble",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.text)
			if err := InferBackend(cfg, func(name string) bool { return name == c.file }); err != nil {
				t.Fatal(err)
			}
			if _, err := Complete(cfg, c.graph, 4); err != nil {
				t.Fatal(err)
			}
			Normalize(cfg, NormalizeOptions{})
			if err := Validate(cfg, NormalizeOptions{}); err != nil {
				t.Fatal(err)
			}
			want := readText(t, "testdata/json/"+c.golden+".json")
			if got := string(JSON(cfg)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNormalizeGroups(t *testing.T) {
	for _, c := range []struct {
		name, text string
		gpus       int
		want       string
	}{
		{"one group called as the model", `backend: "python"`, 0, `name: "m" kind: KIND_CPU count: 1`},
		{"two ONNX instances on the CPU", `backend: "onnxruntime"`, 0, `name: "m" kind: KIND_CPU count: 2`},
		{"one ONNX instance on each GPU", `backend: "onnxruntime"`, 2, `name: "m" kind: KIND_GPU count: 1 gpus: [ 0, 1 ]`},
		{"a count that is given stays", `backend: "onnxruntime" instance_group { count: 3 }`, 0, `name: "m_0" kind: KIND_CPU count: 3`},
		{"a count below one is no count", `backend: "python" instance_group { count: -1 }`, 0, `name: "m_0" kind: KIND_CPU count: 1`},
		{"a name that is given stays", `backend: "python" instance_group { name: "fast" }`, 0, `name: "fast" kind: KIND_CPU count: 1`},
		{"a model's own placement stays", `backend: "onnxruntime" instance_group { kind: KIND_MODEL }`, 1, `name: "m_0" kind: KIND_MODEL count: 1`},
		{"the CPU when a listed GPU is not there", `backend: "python" instance_group { gpus: [ 0, 1 ] }`, 1, `name: "m_0" kind: KIND_CPU count: 1 gpus: [ 0, 1 ]`},
		{"the listed GPUs when all are there", `backend: "python" instance_group { gpus: 1 }`, 2, `name: "m_0" kind: KIND_GPU count: 1 gpus: 1`},
		{"no GPU is made up", `backend: "python" instance_group { kind: KIND_GPU }`, 0, `name: "m_0" kind: KIND_GPU count: 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, `name: "m" `+c.text)
			Normalize(cfg, NormalizeOptions{GPUs: c.gpus})
			want := config(t, "instance_group { "+c.want+" }").InstanceGroup
			if diff := cmp.Diff(want, cfg.InstanceGroup, protocmp.Transform()); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNormalizeNumbersUnnamedGroups(t *testing.T) {
	cfg := config(t, `name: "m" instance_group [ { }, { name: "x" }, { } ]`)
	Normalize(cfg, NormalizeOptions{})
	for i, want := range []string{"m_0", "x", "m_2"} {
		if got := cfg.InstanceGroup[i].Name; got != want {
			t.Errorf("group %d: got %q, want %q", i, got, want)
		}
	}
}

func TestNormalizeFillsSchedulers(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no preferred size without batching", `dynamic_batching { }`, `dynamic_batching { }`},
		{"the largest size is preferred", `max_batch_size: 8 dynamic_batching { }`, `max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 }`},
		{"sequences are idle for a second", `sequence_batching { }`, `sequence_batching { max_sequence_idle_microseconds: 1000000 }`},
		{
			"sizes of the oldest strategy", `max_batch_size: 8 sequence_batching { max_sequence_idle_microseconds: 5 oldest { } }`,
			`max_batch_size: 8 sequence_batching { max_sequence_idle_microseconds: 5 oldest { preferred_batch_size: 8 } }`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := config(t, c.text), config(t, c.want)
			Normalize(got, NormalizeOptions{})
			Normalize(got, NormalizeOptions{}) // again changes nothing
			scheduling := protocmp.FilterField(&modelpb.ModelConfig{}, "instance_group", cmp.Ignore())
			rest := protocmp.IgnoreFields(&modelpb.ModelConfig{}, "version_policy", "optimization")
			if diff := cmp.Diff(want, got, protocmp.Transform(), scheduling, rest); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNormalizeKeepsWhatIsSet(t *testing.T) {
	cfg := config(t, `name: "m" version_policy { all {} } optimization { input_pinned_memory { } }`)
	Normalize(cfg, NormalizeOptions{})
	if cfg.VersionPolicy.GetAll() == nil {
		t.Errorf("version_policy: got %v, want all", cfg.VersionPolicy)
	}
	if cfg.Optimization.InputPinnedMemory.Enable || !cfg.Optimization.OutputPinnedMemory.Enable {
		t.Errorf("pinned memory: got %v, want off for inputs and on for outputs", cfg.Optimization)
	}
}
