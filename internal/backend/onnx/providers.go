package onnx

import (
	"slices"
	"strconv"
	"strings"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// suffix ends the names of execution providers in ONNX Runtime's list.
const suffix = "ExecutionProvider"

// providers returns the execution providers for an instance at p, out of those
// that the library has.
func (s settings) providers(available []string, model string, p backend.Placement, gpu GPU) ([]ort.Provider, error) {
	var list []ort.Provider
	if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU && gpu.Provider != "" {
		var err error
		if list, err = s.gpuProviders(available, model, p); err != nil {
			return nil, err
		}
	}
	for _, a := range s.cpuAccelerators {
		provider, err := find(available, a.GetName())
		if err != nil {
			return nil, err
		}
		provider.Options = a.GetParameters()
		if provider.Name == "OpenVINO" && provider.Options["device_type"] == "" {
			provider.Options = with(provider.Options, "device_type", "CPU")
		}
		list = append(list, provider)
	}
	return list, nil
}

// gpuProviders returns the providers of an instance on a GPU: TensorRT if the
// configuration asks for it, and CUDA for everything else.
func (s settings) gpuProviders(available []string, model string, p backend.Placement) ([]ort.Provider, error) {
	if !slices.Contains(available, "CUDA"+suffix) {
		group := p.Group.GetName()
		if group == "" { // Complete runs before groups have names
			group = model + "_0"
		}
		return nil, status.Errorf(status.InvalidArgument, "instance group %s of model %s has kind KIND_GPU but server does not support GPUs; write kind: KIND_CPU, or leave kind out, to run it on the CPU", group, model)
	}
	device := strconv.Itoa(p.GPU)
	cuda := ort.Provider{Name: "CUDA", Options: with(s.cuda, "device_id", device)}
	var list []ort.Provider
	for _, a := range s.gpuAccelerators {
		provider, err := find(available, a.GetName())
		if err != nil {
			return nil, err
		}
		switch provider.Name {
		case "CUDA":
			for k, v := range a.GetParameters() {
				cuda.Options[k] = v
			}
			continue
		case "Tensorrt":
			if provider.Options, err = tensorRTOptions(a.GetParameters()); err != nil {
				return nil, err
			}
		default:
			provider.Options = a.GetParameters()
		}
		provider.Options = with(provider.Options, "device_id", device)
		list = append(list, provider)
	}
	return append(list, cuda), nil
}

// find returns the provider with an accelerator's name, in upper or lower case:
// "openvino", "tensorrt", "cuda", or another that the library lists.
func find(available []string, name string) (ort.Provider, error) {
	var has []string
	for _, a := range available {
		short := strings.TrimSuffix(a, suffix)
		if strings.EqualFold(short, name) {
			return ort.Provider{Name: short}, nil
		}
		has = append(has, strings.ToLower(short))
	}
	return ort.Provider{}, status.Errorf(status.InvalidArgument, "unknown Execution Accelerator '%s' is requested; this ONNX Runtime has %s", name, strings.Join(has, ", "))
}

// tensorRTOptions translates the parameters of the accelerator "tensorrt" to
// the options of ONNX Runtime's provider.
func tensorRTOptions(parameters map[string]string) (map[string]string, error) {
	options := make(map[string]string, len(parameters))
	for name, value := range parameters {
		switch name {
		case "precision_mode":
			switch value {
			case "FP32":
			case "FP16", "BF16", "INT8":
				options["trt_"+strings.ToLower(value)+"_enable"] = "1"
			default:
				return nil, status.Errorf(status.InvalidArgument, "unsupported precision mode '%s' is requested; it may be FP32, FP16, BF16 or INT8", value)
			}
		case "max_workspace_size_bytes":
			options["trt_max_workspace_size"] = value
		case "int8_calibration_table_name", "int8_use_native_calibration_table":
			options["trt_"+name] = value
		default:
			if !strings.HasPrefix(name, "trt_") {
				return nil, status.Errorf(status.InvalidArgument, "unknown parameter '%s' is provided for TensorRT Execution Accelerator", name)
			}
			options[name] = value
		}
	}
	return options, nil
}

// with returns a copy of options with one more.
func with(options map[string]string, name, value string) map[string]string {
	copied := map[string]string{name: value}
	for k, v := range options {
		copied[k] = v
	}
	return copied
}
