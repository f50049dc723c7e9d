package python

import (
	"os"
	"strings"

	"shoal/internal/backend/cuda"
)

// gpuFolder has an entry for each NVIDIA GPU that this process can see, also in
// a container.
const gpuFolder = "/proc/driver/nvidia/gpus"

// GPUs implements backend.Accelerated: workers may use the GPUs that the server
// may use.
func (b *Backend) GPUs() int { return countGPUs(gpuFolder, newVariables(b.options.Environ)) }

// WhyNoGPUs implements backend.Accelerated.
func (b *Backend) WhyNoGPUs() string {
	if _, err := os.Stat(gpuFolder); err != nil {
		return "NVIDIA's driver is not loaded: there is no " + gpuFolder
	}
	return "CUDA_VISIBLE_DEVICES shows no GPU to this process"
}

// uuid returns the name of a GPU in NVIDIA's tools; empty when it is not known.
func uuid(gpu int) string {
	driver, err := cuda.Open()
	if err != nil {
		return ""
	}
	return driver.UUID(gpu)
}

// countGPUs counts the entries of folder, or, when CUDA_VISIBLE_DEVICES names
// fewer, those up to the first that CUDA would not accept.
func countGPUs(folder string, env *variables) int {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0 // no driver
	}
	visible, given := env.lookup("CUDA_VISIBLE_DEVICES")
	if !given {
		return len(entries)
	}
	n := 0
	for device := range strings.SplitSeq(visible, ",") {
		if device = strings.TrimSpace(device); device == "" || strings.HasPrefix(device, "-") {
			break
		}
		n++
	}
	return min(n, len(entries))
}
