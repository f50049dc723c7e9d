package library

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ebitengine/purego"
)

// A Component is a library that ONNX Runtime needs for GPUs.
type Component struct {
	Name   string
	File   string // such as libcudnn.so.9
	Path   string // where it was found, the file's name alone if the system found it
	Needed bool   // without it no model runs on a GPU
	Err    error  // why it cannot be used, nil when it can
	Hint   string // what to install
}

// components are what the CUDA provider of the pinned version is linked with.
// Those of the system come first, in the order in which they need each other.
var components = []Component{
	{Name: "NVIDIA driver", File: "libcuda.so.1", Needed: true, Hint: "install NVIDIA's driver, 580 or later"},
	{Name: "CUDA runtime", File: "libcudart.so.13", Needed: true, Hint: "apt install cuda-cudart-13-0, or pip install nvidia-cuda-runtime"},
	{Name: "cuBLAS Lt", File: "libcublasLt.so.13", Needed: true, Hint: "apt install libcublas-13-0, or pip install nvidia-cublas"},
	{Name: "cuBLAS", File: "libcublas.so.13", Needed: true, Hint: "apt install libcublas-13-0, or pip install nvidia-cublas"},
	{Name: "cuRAND", File: "libcurand.so.10", Needed: true, Hint: "apt install libcurand-13-0, or pip install nvidia-curand"},
	{Name: "cuDNN", File: "libcudnn.so.9", Needed: true, Hint: "apt install libcudnn9-cuda-13, or pip install nvidia-cudnn-cu13"},
	{Name: "TensorRT", File: "libnvinfer.so.10", Hint: "only for models with the accelerator tensorrt: apt install libnvinfer10, or pip install tensorrt"},
}

// Components loads what the ONNX Runtime at a path needs for GPUs and reports
// what is there. It looks where the system does, and in the Python packages of
// NVIDIA beside the python3 on the PATH.
func Components(path string) []Component {
	provider := filepath.Join(filepath.Dir(path), "libonnxruntime_providers_cuda.so")
	own := Component{Name: "CUDA provider", File: filepath.Base(provider), Path: provider, Needed: true, Hint: "run `shoal runtime install --gpu`"}
	if _, err := os.Stat(provider); err != nil {
		own.Path, own.Err = "", fmt.Errorf("there is no %s beside %s", own.File, path)
	}
	list := []Component{own}
	for _, c := range components {
		c.Path, c.Err = locateComponent(c.File)
		list = append(list, c)
	}
	return list
}

// locateComponent loads a library: once loaded, those that need it find it by
// its name.
func locateComponent(file string) (string, error) {
	if _, err := purego.Dlopen(file, purego.RTLD_LAZY|purego.RTLD_GLOBAL); err == nil {
		return file, nil
	}
	for _, path := range pythonComponents(file) {
		if _, err := purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_GLOBAL); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s was not found", file)
}

// pythonComponents returns where NVIDIA's Python packages have a library.
func pythonComponents(file string) []string {
	python := Environment("", os.Getenv).Python
	if python == "" {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(python))
	paths, err := filepath.Glob(filepath.Join(prefix, "lib", "python3*", "*-packages", "nvidia", "*", "lib", file))
	if err != nil || len(paths) > 0 {
		return paths
	}
	return nil
}
