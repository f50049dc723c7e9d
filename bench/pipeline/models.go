package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"shoal/bench/internal/peer"
)

const (
	smallWidth = 16
	bigWidth   = 150_528 // 602,112 bytes, as of an image
	crops      = "crops"
	cropWidth  = 256
	recogniser = "recogniser"
)

// lengths are how many models a chain has.
var lengths = []int{1, 3, 10}

// A kind is a way of running a chain: an ensemble, or a Python model that calls.
type kind struct {
	name  string // of the models, with a length at the end
	title string
	part  string // the model of each step
	calls bool   // it is a Python model that calls the part, not an ensemble
	width int
}

var kinds = []kind{
	{"chain", "ensemble of ONNX models, 64 bytes", "part", false, smallWidth},
	{"chain_big", "ensemble of ONNX models, 602 KB", "part_big", false, bigWidth},
	{"chain_python", "ensemble of Python models, 64 bytes", "part_python", false, smallWidth},
	{"bls", "BLS calls of an ONNX model, 64 bytes", "part", true, smallWidth},
	{"bls_big", "BLS calls of an ONNX model, 602 KB", "part_big", true, bigWidth},
	{"bls_python", "BLS calls of a Python model, 64 bytes", "part_python", true, smallWidth},
}

// model returns the chain of n models.
func (k kind) model(n int) peer.Model {
	m := peer.Identity(fmt.Sprintf("%s_%d", k.name, n), k.width)
	return m
}

// writeRepository makes dir anew. Both servers take the same.
func writeRepository(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	small, big := peer.Identity("part", smallWidth), peer.Identity("part_big", bigWidth)
	dense := peer.Dense(recogniser, cropWidth, 1024, 1024, 16)
	dense.Settings += "dynamic_batching { }\n"
	for _, m := range []peer.Model{small, big, dense} {
		file, err := m.ONNX()
		if err != nil {
			return err
		}
		if err := writeModel(dir, m.Name, m.Config("onnxruntime"), "model.onnx", file); err != nil {
			return err
		}
	}
	python := small.As("part_python", 1, "")
	if err := writeModel(dir, python.Name, python.Config("python"), "model.py", []byte(python.Python)); err != nil {
		return err
	}
	for _, k := range kinds {
		for _, n := range lengths {
			if err := k.write(dir, n); err != nil {
				return err
			}
		}
	}
	m := peer.Model{Name: crops, MaxBatch: 1, Instances: 4, Tensors: peer.Ports(peer.Input, cropWidth, peer.Output, 16)}
	return writeModel(dir, crops, m.Config("python"), "model.py", []byte(cropsCode))
}

// write writes the chain of n models.
func (k kind) write(dir string, n int) error {
	m := k.model(n)
	if k.calls {
		return writeModel(dir, m.Name, m.Config("python"), "model.py", fmt.Appendf(nil, blsCode, n, k.part))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "platform: \"ensemble\"\nmax_batch_size: %d\n%sensemble_scheduling {\n", m.MaxBatch, m.Tensors)
	for i := range n {
		from, to := fmt.Sprint("t", i), fmt.Sprint("t", i+1)
		if i == 0 {
			from = peer.Input
		}
		if i == n-1 {
			to = peer.Output
		}
		fmt.Fprintf(&b, "  step { model_name: %q model_version: -1 input_map { key: %q value: %q } output_map { key: %q value: %q } }\n",
			k.part, peer.Input, from, peer.Output, to)
	}
	return writeModel(dir, m.Name, b.String()+"}\n", "", nil)
}

func writeModel(dir, name, config, file string, content []byte) error {
	version := filepath.Join(dir, name, "1")
	if err := os.MkdirAll(version, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name, "config.pbtxt"), []byte(config), 0o644); err != nil || file == "" {
		return err
	}
	return os.WriteFile(filepath.Join(version, file), content, 0o644)
}

const blsCode = `import triton_python_backend_utils as pb

CALLS, MODEL = %d, %q


class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            x = pb.get_input_tensor_by_name(r, "INPUT0")
            for _ in range(CALLS):
                answer = pb.InferenceRequest(model_name=MODEL, requested_output_names=["OUTPUT0"], inputs=[pb.Tensor("INPUT0", x.as_numpy())]).exec()
                if answer.has_error():
                    raise pb.TritonModelException(answer.error().message())
                x = pb.get_output_tensor_by_name(answer, "OUTPUT0")
            out.append(pb.InferenceResponse([pb.Tensor("OUTPUT0", x.as_numpy())]))
        return out
`

const cropsCode = `import asyncio

import triton_python_backend_utils as pb


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.one(r) for r in requests]

    async def one(self, r):
        x = pb.get_input_tensor_by_name(r, "INPUT0").as_numpy()
        asked = [
            pb.InferenceRequest(model_name="` + recogniser + `", requested_output_names=["OUTPUT0"], inputs=[pb.Tensor("INPUT0", x)]).async_exec()
            for _ in range(8)
        ]
        answers = await asyncio.gather(*asked)
        return pb.InferenceResponse([pb.Tensor("OUTPUT0", sum(pb.get_output_tensor_by_name(a, "OUTPUT0").as_numpy() for a in answers))])
`
