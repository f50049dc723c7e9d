package onnx

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func TestParametersDoWhatTheyDoInTriton(t *testing.T) {
	set := func(pairs ...string) string {
		var b strings.Builder
		for i := 0; i < len(pairs); i += 2 {
			b.WriteString(`parameters { key: "` + pairs[i] + `" value { string_value: "` + pairs[i+1] + `" } } `)
		}
		return b.String()
	}
	yes, no := true, false
	for _, c := range []struct {
		name   string
		config string
		want   func(s *settings)
	}{
		{"nothing", ``, func(*settings) {}},
		{"threads", set("intra_op_thread_count", "3", "inter_op_thread_count", "2"), func(s *settings) { s.intra, s.intraSet, s.inter = 3, true, 2 }},
		{"threads left to ONNX Runtime", set("intra_op_thread_count", "0"), func(s *settings) { s.intraSet = true }},
		{"parallel execution", set("execution_mode", "1"), func(s *settings) { s.parallel = true }},
		{"sequential execution", set("execution_mode", "0"), func(*settings) {}},
		{"memory", set("enable_mem_arena", "0", "enable_mem_pattern", "TRUE"), func(s *settings) { s.arena, s.pattern = &no, &yes }},
		{"arena shrinkage is an option of runs", set("memory.enable_memory_arena_shrinkage", "cpu:0"), func(s *settings) {
			s.run["memory.enable_memory_arena_shrinkage"] = "cpu:0"
		}},
		{"ONNX Runtime's own names", set("session.set_denormal_as_zero", "1", "session.intra_op.allow_spinning", "1"), func(s *settings) {
			s.session["session.set_denormal_as_zero"], s.session["session.intra_op.allow_spinning"] = "1", "1"
		}},
		{"CUDA's by number", set("cudnn_conv_algo_search", "1", "arena_extend_strategy", "1", "gpu_mem_limit", "7"), func(s *settings) {
			s.cuda = map[string]string{"cudnn_conv_algo_search": "HEURISTIC", "arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": "7"}
		}},
		{"what is for the server is left to it", set("SHOAL_BATCHING", "auto"), func(*settings) {}},
		{"basic optimization", `optimization { graph { level: -1 } }`, func(s *settings) { s.optimization = ort.OptimizeBasic }},
		{"extended optimization", `optimization { graph { level: 1 } }`, func(s *settings) { s.optimization = ort.OptimizeExtended }},
		{"no optimization", `optimization { graph { level: 2 } }`, func(s *settings) { s.optimization = ort.OptimizeNothing }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseSettings(config(t, c.config))
			if err != nil {
				t.Fatal(err)
			}
			want, err := parseSettings(config(t, ``))
			if err != nil {
				t.Fatal(err)
			}
			c.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThreadsSpinForAShortTime(t *testing.T) {
	const allow, inter, time = "session.intra_op.allow_spinning", "session.inter_op.allow_spinning", "session.intra_op.spin_duration_us"
	for _, c := range []struct {
		name   string
		model  map[string]string
		limits bool
		want   map[string]string
	}{
		{"by default", nil, true, map[string]string{allow: "1", time: spinTime, inter: "0"}},
		{"not in older libraries", nil, false, map[string]string{allow: "0", inter: "0"}},
		{"not if the model does not want it", map[string]string{allow: "0"}, true, map[string]string{allow: "0", inter: "0"}},
		{"without a limit if the model wants it", map[string]string{allow: "1"}, true, map[string]string{allow: "1", inter: "0"}},
		{"as long as the model wants", map[string]string{time: "500"}, true, map[string]string{allow: "1", time: "500", inter: "0"}},
	} {
		if diff := cmp.Diff(c.want, settings{session: c.model}.withSpinning(c.limits)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestWrongParametersAreNamedAllAtOnce(t *testing.T) {
	cfg := config(t, `optimization { graph { level: 7 } }`)
	cfg.Parameters = map[string]*modelpb.ModelParameter{}
	for name, value := range map[string]string{
		"intra_op_thread_count": "two", "execution_mode": "2", "enable_mem_arena": "maybe", "cudnn_conv_algo_search": "3",
	} {
		cfg.Parameters[name] = &modelpb.ModelParameter{StringValue: value}
	}
	_, err := parseSettings(cfg)
	if status.CodeOf(err) != status.InvalidArgument {
		t.Fatalf("got %v, want InvalidArgument", err)
	}
	for _, want := range []string{
		`optimization.graph.level: got 7`, `intra_op_thread_count: got "two"`, `execution_mode: got "2"`, `enable_mem_arena: got "maybe"`,
		`cudnn_conv_algo_search: got "3"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}

func TestUnknownParametersAreNamedInTheLog(t *testing.T) {
	cfg := config(t, `parameters { key: "colour" value { string_value: "red" } } parameters { key: "intra_op_thread_cout" value { string_value: "1" } }`)
	s, err := parseSettings(cfg)
	if err != nil {
		t.Fatalf("got %v, want them taken, as Triton does", err)
	}
	var log bytes.Buffer
	s.warnUnknown(slog.New(slog.NewTextHandler(&log, nil)), "m")
	for _, want := range []string{`so that it does nothing" model=m parameter=colour`, `did you mean intra_op_thread_count?" model=m parameter=intra_op_thread_cout`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got %s, want %s in it", log.String(), want)
		}
	}
}

func TestProvidersFollowTheAccelerators(t *testing.T) {
	const accelerated = `optimization { execution_accelerators {
		gpu_execution_accelerator { name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } parameters { key: "max_workspace_size_bytes" value: "9" } }
		gpu_execution_accelerator { name: "cuda" parameters { key: "use_ep_level_unified_stream" value: "1" } }
		cpu_execution_accelerator { name: "openvino" } } }`
	all := []string{"TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider", "CPUExecutionProvider"}
	openvino := ort.Provider{Name: "OpenVINO", Options: map[string]string{"device_type": "CPU"}}
	for _, c := range []struct {
		name      string
		config    string
		kind      modelpb.ModelInstanceGroup_Kind
		available []string
		want      []ort.Provider
		err       string
	}{
		{"none on a CPU", ``, modelpb.ModelInstanceGroup_KIND_CPU, all, nil, ""},
		{"CUDA on a GPU", ``, modelpb.ModelInstanceGroup_KIND_GPU, all, []ort.Provider{{Name: "CUDA", Options: map[string]string{"device_id": "3"}}}, ""},
		{"those of GPUs do not matter to a CPU", accelerated, modelpb.ModelInstanceGroup_KIND_CPU, all, []ort.Provider{openvino}, ""},
		{"TensorRT before CUDA", accelerated, modelpb.ModelInstanceGroup_KIND_GPU, all, []ort.Provider{
			{Name: "Tensorrt", Options: map[string]string{"device_id": "3", "trt_fp16_enable": "1", "trt_max_workspace_size": "9"}},
			{Name: "CUDA", Options: map[string]string{"device_id": "3", "use_ep_level_unified_stream": "1"}},
			openvino,
		}, ""},
		{"one that is not there", accelerated, modelpb.ModelInstanceGroup_KIND_CPU, []string{"CPUExecutionProvider"}, nil, "unknown Execution Accelerator 'openvino' is requested; this ONNX Runtime has cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parseSettings(config(t, c.config))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.providers(c.available, "m", backend.Placement{Kind: c.kind, GPU: 3}, nvidia)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("providers (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func TestTensorRTRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, value := range map[string]string{"precision_mode": "FP4", "speed": "11"} {
		if _, err := tensorRTOptions(map[string]string{name: value}); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%s=%s: got %v, want InvalidArgument", name, value, err)
		}
	}
}
