package engine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

const twoInputs = `
backend: "identity"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "INPUT1" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUTPUT1" data_type: TYPE_STRING dims: [ -1 ] }, { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 2 ] label_filename: "labels.txt" } ]
`

const oneInput = `
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
`

const optionalInput = `
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 3 ] optional: true } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 3 ] } ]
`

// repo writes model folders, given by the path of each file, and returns the
// repository's path.
func repo(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func start(t testing.TB, dirs ...string) *Engine {
	t.Helper()
	e, err := Start(t.Context(), Options{
		Name: "test", Version: "1", Repositories: dirs, LoadThreads: 2,
		Backends: []backend.Backend{identity.Backend{}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func standard(t *testing.T) *Engine {
	t.Helper()
	return start(t, repo(t, map[string]string{
		"two/config.pbtxt": twoInputs, "two/labels.txt": "low\nhigh\n", "two/1/": "",
		"one/config.pbtxt": oneInput, "one/1/": "",
		"opt/config.pbtxt": optionalInput, "opt/1/": "",
	}))
}

// in is an input in a short form: name, type, shape and content.
func in(name string, t tensor.Type, shape tensor.Shape, data string) infer.Input {
	return infer.Input{Name: name, Type: t, Shape: shape, Data: infer.Data{First: []byte(data)}}
}

func good() []infer.Input {
	return []infer.Input{
		in("INPUT0", tensor.Int32, tensor.Shape{1, 2}, eightBytes),
		in("INPUT1", tensor.Bytes, tensor.Shape{1, 1}, oneString),
	}
}
