package peer

import (
	"archive/zip"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRepositoriesHaveTheSameSettingsOnBothServers(t *testing.T) {
	dir := t.TempDir()
	shoal, triton := filepath.Join(dir, "shoal"), filepath.Join(dir, "triton")
	batching := Small.As("batching", 2, "dynamic_batching { }\n")
	if err := WriteShoal(shoal, batching, MLP()); err != nil {
		t.Fatal(err)
	}
	if err := writePython(triton, batching, MLP()); err != nil {
		t.Fatal(err)
	}
	const want = `max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { }
`
	for path, backend := range map[string]string{shoal: "onnxruntime", triton: "python"} {
		got, err := os.ReadFile(filepath.Join(path, "batching", "config.pbtxt"))
		if err != nil || string(got) != `backend: "`+backend+"\"\n"+want {
			t.Errorf("got %s, %v, want the backend %s and %s", got, err, backend, want)
		}
	}
	if _, err := os.Stat(filepath.Join(shoal, "mlp", "1", "model.onnx")); err != nil {
		t.Errorf("got %v, want the MLP among Shoal's models", err)
	}
	if _, err := os.Stat(filepath.Join(triton, "mlp")); err == nil {
		t.Error("got the MLP among Triton's models, want it left out: there is no Python of it")
	}
}

func TestMLPIsTheSameEveryTime(t *testing.T) {
	widths := []int{4, 8, 2}
	first, second := mlp(widths), mlp(widths)
	if sha256.Sum256(first) != sha256.Sum256(second) {
		t.Error("got two different models, want one")
	}
	weights := 4 * (4*8 + 8 + 8*2 + 2)
	if got := len(first); got < weights || got > weights+1000 {
		t.Errorf("got %d bytes, want %d of weights and a little more", got, weights)
	}
}

func TestCredsweeperRefusesAnotherFile(t *testing.T) {
	work := t.TempDir()
	f, err := os.Create(filepath.Join(work, credsweeper.wheel)) // so pip is not asked
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	entry, err := z.Create(credsweeper.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Write([]byte("another model")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Credsweeper(work).ONNX(); err == nil || !strings.Contains(err.Error(), "want "+credsweeper.sha256) {
		t.Errorf("got %v, want an error that names the hash", err)
	}
}

func TestOneHotHasOneOneInEachRow(t *testing.T) {
	tensor := oneHot("x", 5, 7)
	for i := range 5 {
		sum := float32(0)
		for _, v := range tensor.Data[i*7 : (i+1)*7] {
			sum += v
		}
		if sum != 1 {
			t.Errorf("row %d: got a sum of %v, want 1", i, sum)
		}
	}
}

func TestModelsOfOneFileShareIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "models")
	dense := Dense("dense", 4, 2)
	if err := WriteShoal(dir, dense, dense.As("again", 2, ""), Small); err != nil {
		t.Fatal(err)
	}
	file := func(name string) os.FileInfo {
		info, err := os.Stat(filepath.Join(dir, name, "1", "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if !os.SameFile(file("dense"), file("again")) {
		t.Error("got two files of one model, want one")
	}
	if os.SameFile(file("dense"), file("identity")) {
		t.Error("got one file of two models, want two")
	}
}
