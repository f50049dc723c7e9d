package main

import (
	"fmt"
	"os"
	"path/filepath"

	"shoal/bench/internal/peer"
)

// The slow model sleeps for so long that what a tool costs hardly shows:
// perf_analyzer takes 0.2 to 0.5 ms of a small request on two cores.
const (
	slowName      = "slow"
	slowInstances = 4
	slowMS        = 10
	slowWidth     = 16
)

// addSlow lets Shoal serve the slow model too: its own identity backend, sleeping.
func addSlow(c *peer.Command, work string) error {
	repository := filepath.Join(work, "shoal-slow")
	config := fmt.Sprintf(`backend: "identity"
max_batch_size: 8
input [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]
output [ { name: %q data_type: TYPE_FP32 dims: [ %d ] } ]
instance_group [ { count: %d kind: KIND_CPU } ]
parameters [ { key: "execute_delay_ms" value: { string_value: "%d" } } ]
`, peer.Input, slowWidth, peer.Output, slowWidth, slowInstances, slowMS)
	if err := os.MkdirAll(filepath.Join(repository, slowName, "1"), 0o755); err != nil {
		return err
	}
	c.Args = append(c.Args, "--model-repository", repository)
	return os.WriteFile(filepath.Join(repository, slowName, "config.pbtxt"), []byte(config), 0o644)
}

// slowOnTriton is the same in Python.
func slowOnTriton() peer.Model {
	m := peer.Identity(slowName, slowWidth)
	m.Instances = slowInstances
	m.Python = fmt.Sprintf(`import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(%d / 1000)
        return [pb.InferenceResponse([pb.Tensor(%q, pb.get_input_tensor_by_name(r, %q).as_numpy())]) for r in requests]
`, slowMS, peer.Output, peer.Input)
	return m
}
