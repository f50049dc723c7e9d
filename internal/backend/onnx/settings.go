package onnx

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/procs"
	"shoal/internal/spelling"
	"shoal/internal/status"
)

// settings are a model's settings for ONNX Runtime, before its placement is
// known.
type settings struct {
	intra, inter     int
	intraSet         bool
	parallel         bool
	optimization     ort.Optimization
	arena, pattern   *bool
	session, run     map[string]string // entries by ONNX Runtime's own names
	cuda             map[string]string
	graphs           bool  // CUDA graphs are wanted
	alone            bool  // no batch is prepared while another runs on a GPU
	graphSizes       []int // the batch sizes that have one; empty means the powers of two
	spin             bool  // wait for a GPU with a busy core
	tryLayouts       bool  // convolutions run in the layout that turns out to be faster
	cpuAccelerators  []*modelpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator
	gpuAccelerators  []*modelpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator
	customOperations []string
	unknown          []string // unknown parameters
}

// parameters are the parameters of Triton's ONNX backend, with what each does.
// Entries that ONNX Runtime takes by name are in sessionEntries.
var parameters = map[string]func(s *settings, name, value string) error{
	"intra_op_thread_count": func(s *settings, name, value string) error {
		s.intraSet = true
		return parseCount(name, value, &s.intra)
	},
	"inter_op_thread_count": func(s *settings, name, value string) error { return parseCount(name, value, &s.inter) },
	"execution_mode": func(s *settings, name, value string) error {
		if value != "0" && value != "1" {
			return badParameter(name, value, "0 (sequential) or 1 (parallel)")
		}
		s.parallel = value == "1"
		return nil
	},
	"enable_mem_arena":   func(s *settings, name, value string) error { return parseSwitch(name, value, &s.arena) },
	"enable_mem_pattern": func(s *settings, name, value string) error { return parseSwitch(name, value, &s.pattern) },
	"memory.enable_memory_arena_shrinkage": func(s *settings, name, value string) error {
		s.run[name] = value
		return nil
	},
	"cudnn_conv_algo_search":    oneOf("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
	"arena_extend_strategy":     oneOf("kNextPowerOfTwo", "kSameAsRequested"),
	"gpu_mem_limit":             asCUDA,
	"do_copy_in_default_stream": asCUDA,

	"cudnn_conv_use_max_workspace": asCUDA,
	"cudnn_conv1d_pad_to_nc1d":     asCUDA,
	"use_tf32":                     asCUDA,
	"fuse_conv_bias":               asCUDA,
	"sdpa_kernel":                  asCUDA,

	"prefer_nhwc": func(s *settings, name, value string) error {
		if strings.EqualFold(value, "auto") {
			s.tryLayouts = true
			return nil
		}
		return asCUDA(s, name, value)
	},
	"use_device_allocator_for_initializers": func(s *settings, name, value string) error {
		s.session["session."+name] = value
		return nil
	},
	"enable_cuda_graph": func(s *settings, name, value string) error {
		b, err := parseBool(value)
		if err != nil {
			return badParameter(name, value, "0 or 1")
		}
		s.graphs = b
		return nil
	},
	"overlap": func(s *settings, name, value string) error {
		b, err := parseBool(value)
		if err != nil {
			return badParameter(name, value, "0 or 1")
		}
		s.alone = !b
		return nil
	},
	"cuda_graph_batch_sizes": func(s *settings, name, value string) error {
		for text := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil || n < 1 {
				return badParameter(name, value, "batch sizes such as 1,4,16")
			}
			s.graphSizes = append(s.graphSizes, n)
		}
		return nil
	},
}

// asCUDA passes a parameter to the CUDA provider under its own name.
func asCUDA(s *settings, name, value string) error {
	s.cuda[name] = value
	return nil
}

// oneOf passes a numbered parameter to the CUDA provider by the provider's
// names for the numbers.
func oneOf(names ...string) func(*settings, string, string) error {
	return func(s *settings, name, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n >= len(names) {
			return badParameter(name, value, "0 to "+strconv.Itoa(len(names)-1))
		}
		return asCUDA(s, name, names[n])
	}
}

// sessionEntries are ONNX Runtime's named session settings that make sense for
// a server. ONNX Runtime accepts any name without an error, so a misspelt one
// would do nothing.
var sessionEntries = []string{
	"ep.context_embed_mode", "ep.context_enable", "ep.context_file_path",
	"mlas.enable_gemm_fastmath_arm64_bfloat16",
	"optimization.disable_specified_optimizers", "optimization.enable_cast_chain_elimination",
	"optimization.enable_gelu_approximation", "optimization.minimal_build_optimizations",
	"session.allow_released_opsets_only", "session.disable_aot_function_inlining", "session.disable_cpu_ep_fallback",
	"session.disable_double_qdq_remover", "session.disable_prepacking", "session.disable_qdq_constant_folding",
	"session.disable_quant_qdq", "session.dynamic_block_base", "session.enable_dq_matmulnbits_fusion",
	"session.enable_quant_qdq_cleanup", "session.force_spinning_stop", "session.graph_optimizations_loop_level",
	"session.inter_op.allow_spinning", "session.inter_op.spin_backoff_max", "session.inter_op.spin_duration_us",
	"session.intra_op.allow_spinning", "session.intra_op.spin_backoff_max", "session.intra_op.spin_duration_us",
	"session.intra_op_thread_affinities", "session.load_model_format",
	"session.node_partition_config_file", "session.optimized_model_external_initializers_file_name",
	"session.optimized_model_external_initializers_min_size_in_bytes",
	"session.qdq_matmulnbits_accuracy_level", "session.qdq_matmulnbits_block_size", "session.qdqisint8allowed",
	"session.set_denormal_as_zero", "session.strict_shape_type_inference", "session.use_deterministic_compute",
	"session.use_device_allocator_for_initializers", "session.use_env_allocators",
	"session.use_ort_model_bytes_directly", "session.use_ort_model_bytes_for_initializers", "session.x64quantprecision",
}

// parseSettings reads a configuration. It reports all errors at once.
func parseSettings(cfg *modelpb.ModelConfig) (settings, error) {
	s := settings{
		session: map[string]string{},
		run:     map[string]string{}, cuda: map[string]string{},
		cpuAccelerators:  cfg.GetOptimization().GetExecutionAccelerators().GetCpuExecutionAccelerator(),
		gpuAccelerators:  cfg.GetOptimization().GetExecutionAccelerators().GetGpuExecutionAccelerator(),
		customOperations: cfg.GetModelOperations().GetOpLibraryFilename(),
		graphs:           true,
		spin:             cfg.GetOptimization().GetCuda().GetBusyWaitEvents(),
	}
	for _, g := range cfg.GetOptimization().GetCuda().GetGraphSpec() {
		s.graphSizes = append(s.graphSizes, max(1, int(g.GetBatchSize())))
	}
	var faults []error
	var err error
	if s.optimization, err = parseLevel(cfg.GetOptimization().GetGraph().GetLevel()); err != nil {
		faults = append(faults, err)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.GetParameters())) {
		value := cfg.GetParameters()[name].GetStringValue()
		if model.ServerParameter(name) {
			continue
		}
		if set := parameters[name]; set != nil {
			faults = append(faults, set(&s, name, value))
		} else if slices.Contains(sessionEntries, name) {
			s.session[name] = value
		} else {
			s.unknown = append(s.unknown, name)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return s, status.Errorf(status.InvalidArgument, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return s, nil
}

// maxSlip is the most wrong letters in a misspelt parameter.
const maxSlip = 3

// warnUnknown warns of parameters without an effect. Triton accepts any, since
// they may be for another reader of the configuration; but one may be misspelt.
func (s *settings) warnUnknown(log *slog.Logger, model string) {
	known := append(slices.Collect(maps.Keys(parameters)), sessionEntries...)
	for _, name := range s.unknown {
		text := "the ONNX Runtime backend knows no parameter of that name, so that it does nothing"
		near := slices.MinFunc(known, func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
		if spelling.Distance(name, near) <= maxSlip {
			text += "; did you mean " + near + "?"
		}
		log.Warn(text, "model", model, "parameter", name)
	}
}

// parseLevel returns the meaning of optimization.graph.level. The numbers are
// Triton's.
func parseLevel(level int32) (ort.Optimization, error) {
	switch level {
	case -1:
		return ort.OptimizeBasic, nil
	case 0:
		return ort.OptimizeAll, nil
	case 1:
		return ort.OptimizeExtended, nil
	case 2:
		return ort.OptimizeNothing, nil
	}
	return 0, errors.New("optimization.graph.level: got " + strconv.Itoa(int(level)) + ", expected -1 (basic), 0 (all), 1 (extended) or 2 (none)")
}

func badParameter(name, value, want string) error {
	return errors.New("parameters: " + name + ": got \"" + value + "\", expected " + want)
}

func parseCount(name, value string, to *int) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 1<<16 {
		return badParameter(name, value, "a number of threads, 0 for one per core")
	}
	*to = n
	return nil
}

func parseSwitch(name, value string, to **bool) error {
	b, err := parseBool(value)
	if err != nil {
		return badParameter(name, value, "0 or 1")
	}
	*to = &b
	return nil
}

// parseBool reads the forms that Triton accepts.
func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, strconv.ErrSyntax
}

// spinTime is for how many microseconds threads spin: 20 bring most of what spinning
// without a limit brings to a model that has the machine for itself (with one caller a
// convolutional network on 16 cores takes 3.6 ms instead of 5.6), and longer times make
// other models slower.
const spinTime = "20"

// withSpinning returns the session's settings with what a model does not say of how its
// threads wait for each other; limits is whether the library can limit that time. Threads
// that spin without a limit, as is ONNX Runtime's default, take 1.5 to 4 times the CPU of
// threads that sleep, at the cost of everything else that the server runs.
func (s settings) withSpinning(limits bool) map[string]string {
	const intra, inter = "session.intra_op.allow_spinning", "session.inter_op.allow_spinning"
	all := map[string]string{intra: "0", inter: "0"}
	if limits {
		all[intra], all["session.intra_op.spin_duration_us"] = "1", spinTime
	}
	if _, set := s.session[intra]; set {
		delete(all, "session.intra_op.spin_duration_us") // the model decides
	}
	maps.Copy(all, s.session)
	return all
}

// options returns the session options of an instance at p.
func (s settings) options(lib *ort.Library, cfg *modelpb.ModelConfig, p backend.Placement, gpu GPU) (ort.Options, error) {
	o := ort.Options{
		Intra: s.intra, Inter: s.inter, Parallel: s.parallel, Optimization: s.optimization,
		MemArena: s.arena, MemPattern: s.pattern, Config: s.withSpinning(lib.LimitsSpinning()), CustomOps: s.customOperations,
	}
	if !s.intraSet {
		o.Intra = max(1, procs.Native.Cores()/max(1, p.Count))
		if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU {
			o.Intra = 1 // the GPU does the work
		}
	}
	available, err := lib.Providers()
	if err != nil {
		return o, status.Errorf(status.Internal, "%v", err)
	}
	o.Providers, err = s.providers(available, cfg.GetName(), p, gpu)
	return o, err
}
