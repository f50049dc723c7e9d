package model

import (
	"strings"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// ensemblePlatform is the platform of a model that is made of other models. It
// needs no backend.
const ensemblePlatform = "ensemble"

// A platform is a kind of model file: its name and the backend that runs it.
// Backends whose models have no platform leave it empty.
type platform struct {
	file    string
	backend string
	name    string
}

// platforms are the known ones; the first match counts.
var platforms = []platform{
	{"model.plan", "tensorrt", "tensorrt_plan"},
	{"model.onnx", "onnxruntime", "onnxruntime_onnx"},
	{"model.xml", "openvino", ""},
	{"model.pt", "pytorch", "pytorch_libtorch"},
	{"model.pt2", "pytorch", "torch_aoti"},
	{"model.py", "python", ""},
}

// InferBackend fills in the backend, the platform and the name of the model's
// file if cfg leaves them out. Files reports whether the model's first version
// folder has a file or folder of that name. The model's name must be set
// before.
func InferBackend(cfg *modelpb.ModelConfig, files func(name string) bool) error {
	for _, p := range platforms {
		if p.fits(cfg, files) {
			p.fill(cfg)
			return nil
		}
	}
	if cfg.GetBackend() != "" || cfg.GetPlatform() != "" || cfg.GetDefaultModelFilename() != "" {
		return nil // Validate checks it
	}
	dot := strings.LastIndexByte(cfg.GetName(), '.')
	if dot < 0 || dot == len(cfg.GetName())-1 {
		return status.Errorf(status.InvalidArgument,
			"Invalid model name: Could not determine backend for model '%s' with no backend in model configuration. "+
				"Expected model name of the form 'model.<backend_name>'.", cfg.GetName())
	}
	platform{backend: cfg.GetName()[dot+1:], file: "model." + cfg.GetName()[dot+1:]}.fill(cfg)
	return nil
}

// fits reports whether the model is of this kind: by its backend, else by its
// platform or file name, else by an existing file.
func (p platform) fits(cfg *modelpb.ModelConfig, files func(string) bool) bool {
	backend, name, file := cfg.GetBackend(), cfg.GetPlatform(), cfg.GetDefaultModelFilename()
	switch {
	case backend != "":
		return backend == p.backend && (name == "" || name == p.name)
	case name != "" && name == p.name, file != "" && file == p.file:
		return true
	}
	return name == "" && file == "" && files(p.file)
}

func (p platform) fill(cfg *modelpb.ModelConfig) {
	cfg.Backend = p.backend
	if cfg.Platform == "" {
		cfg.Platform = p.name
	}
	if cfg.DefaultModelFilename == "" {
		cfg.DefaultModelFilename = p.file
	}
}

// pairs reports whether a backend may have that platform. Unknown backends may
// have any.
func pairs(backend, name string) bool {
	known := false
	for _, p := range platforms {
		if p.backend == backend && p.name != "" {
			known = true
			if p.name == name {
				return true
			}
		}
	}
	return !known
}
