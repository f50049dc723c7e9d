package peer

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"shoal/internal/load"
)

// The credsweeper package on PyPI (MIT licence) brings a trained LSTM that says
// whether a line of text leaks a secret.
const (
	credsweeperPackage = "credsweeper==1.19.5"
	credsweeperWheel   = "credsweeper-1.19.5-py3-none-any.whl"
	credsweeperPath    = "credsweeper/ml_model/ml_model.onnx"
	credsweeperSHA256  = "ae6155800a46c24c86b5d147c1214f775d047bc2f5c2f97b4640b8ee022fec28"
)

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
		Name: "credsweeper", MaxBatch: 32, Instances: 1, Tensors: credsweeperPorts, Settings: oneThread,
		Inputs: []load.Tensor{
			oneHot("line_input", 128, 101), oneHot("value_input", 64, 101), oneHot("variable_input", 64, 101), Random("feature_input", 529),
		},
		Answer: 1,
		ONNX:   func() ([]byte, error) { return credsweeperFile(work) },
	}
}

// oneHot returns a text as the model wants it: a row for each of its characters
// with a one at that character's place in the alphabet. The text is random and
// the same every time.
func oneHot(name string, length, alphabet int64) load.Tensor {
	t := load.Tensor{Name: name, Shape: []int64{1, length, alphabet}, Data: make([]float32, length*alphabet)}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range length {
		t.Data[i*alphabet+rng.Int64N(alphabet)] = 1
	}
	return t
}

// credsweeperFile returns the model file, from the wheel in work or from one
// that pip downloads.
func credsweeperFile(work string) ([]byte, error) {
	wheel := filepath.Join(work, credsweeperWheel)
	if _, err := os.Stat(wheel); errors.Is(err, os.ErrNotExist) {
		pip := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, credsweeperPackage)
		if out, err := pip.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", pip, err, out)
		}
	}
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to fetch it again", wheel, err)
	}
	defer z.Close()
	f, err := z.Open(credsweeperPath)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wheel, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != credsweeperSHA256 {
		return nil, fmt.Errorf("%s in %s: got SHA-256 %x, want %s", credsweeperPath, wheel, sum, credsweeperSHA256)
	}
	return b, nil
}
