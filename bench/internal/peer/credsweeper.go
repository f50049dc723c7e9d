package peer

import (
	"math/rand/v2"
)

// The credsweeper package on PyPI (MIT licence) brings a trained LSTM that says
// whether a line of text leaks a secret.
var credsweeper = packaged{
	requirement: "credsweeper==1.19.5",
	wheel:       "credsweeper-1.19.5-py3-none-any.whl",
	path:        "credsweeper/ml_model/ml_model.onnx",
	sha256:      "ae6155800a46c24c86b5d147c1214f775d047bc2f5c2f97b4640b8ee022fec28",
}

const credsweeperPorts = `input [
  { name: "line_input" data_type: TYPE_FP32 dims: [ 128, 101 ] },
  { name: "value_input" data_type: TYPE_FP32 dims: [ 64, 101 ] },
  { name: "variable_input" data_type: TYPE_FP32 dims: [ 64, 101 ] },
  { name: "feature_input" data_type: TYPE_FP32 dims: [ 529 ] }
]
output [ { name: "prediction" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

// Credsweeper returns the credsweeper LSTM on one thread. Its file is fetched
// through pip into the folder work, once.
func Credsweeper(work string) Model {
	return Model{
		Name: "credsweeper", MaxBatch: 32, Instances: 1, Tensors: credsweeperPorts, Settings: OneThread,
		Inputs: []Tensor{
			oneHot("line_input", 128, 101), oneHot("value_input", 64, 101), oneHot("variable_input", 64, 101), Random("feature_input", 529),
		},
		Answer: 1,
		ONNX:   func() ([]byte, error) { return credsweeper.file(work) },
	}
}

// oneHot returns a text as the model wants it: a row for each of its characters
// with a one at that character's place in the alphabet. The text is random and
// the same every time.
func oneHot(name string, length, alphabet int64) Tensor {
	t := Tensor{Name: name, Shape: []int64{1, length, alphabet}, Data: make([]float32, length*alphabet)}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range length {
		t.Data[i*alphabet+rng.Int64N(alphabet)] = 1
	}
	return t
}
