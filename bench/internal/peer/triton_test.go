package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeVenv lays out what a virtual environment with nvidia-pytriton has.
func fakeVenv(t *testing.T) string {
	t.Helper()
	venv := t.TempDir()
	for _, file := range []string{
		"pyvenv.cfg",
		"lib/python3.11/site-packages/pytriton/tritonserver/bin/tritonserver",
		"lib/python3.11/site-packages/pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub",
	} {
		path := filepath.Join(venv, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("home = /opt/python/bin\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return venv
}

func TestTritonCommandHasItsLibrariesModelsAndBackend(t *testing.T) {
	venv, work := fakeVenv(t), t.TempDir()
	c, err := Triton(venv, work, Small)
	if err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(venv, "lib/python3.11/site-packages")
	if want := "LD_LIBRARY_PATH=" + site + "/nvidia_pytriton.libs:/opt/python/lib"; c.Env[0] != want {
		t.Errorf("got %q, want %q", c.Env[0], want)
	}
	if want := site + "/pytriton/tritonserver/bin/tritonserver"; c.Args[0] != want {
		t.Errorf("got %q, want %q", c.Args[0], want)
	}
	if _, err := os.Readlink(filepath.Join(work, "triton-backends/python/triton_python_backend_stub")); err != nil {
		t.Errorf("got %v, want a link to the stub", err)
	}
	config, err := os.ReadFile(filepath.Join(work, "triton-models-1/identity/config.pbtxt"))
	if err != nil || !strings.HasPrefix(string(config), "backend: \"python\"\nmax_batch_size: 8\n") {
		t.Errorf("got %q, %v, want a configuration of the Python backend", config, err)
	}
}

func TestTritonWithoutItsPackageSaysHowToGetIt(t *testing.T) {
	_, err := Triton(t.TempDir(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "pip install nvidia-pytriton") {
		t.Errorf("got %v, want the command that installs it", err)
	}
}

func TestTritonONNXNeedsItsBackend(t *testing.T) {
	venv, backends, work := fakeVenv(t), t.TempDir(), t.TempDir()
	server := filepath.Join(venv, "lib/python3.11/site-packages/pytriton/tritonserver/bin/tritonserver")
	if _, err := TritonONNX(server, backends, work, MLP()); err == nil || !strings.Contains(err.Error(), "--backends") {
		t.Errorf("got %v, want an error that names --backends", err)
	}
	for _, dir := range []string{filepath.Join(backends, "onnxruntime"), filepath.Join(venv, "lib/python3.11/site-packages/nvidia_pytriton.libs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(backends, "onnxruntime", "libtriton_onnxruntime.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := TritonONNX(server, backends, work, MLP())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Env) != 1 || !strings.HasSuffix(c.Env[0], "/nvidia_pytriton.libs") {
		t.Errorf("got the environment %q, want the libraries of the package", c.Env)
	}
	if _, err := os.Stat(filepath.Join(work, "triton-onnx-models/mlp/1/model.onnx")); err != nil {
		t.Errorf("got %v, want the MLP among the models", err)
	}
}
