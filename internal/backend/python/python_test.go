package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// interpreter finds a Python that has numpy: the one that SHOAL_TEST_PYTHON
// names, or python3, perhaps with what make has put into build/python.
var interpreter = sync.OnceValues(func() (path, library string) {
	library, _ = filepath.Abs("../../../build/python")
	for _, try := range []struct{ path, library string }{{os.Getenv("SHOAL_TEST_PYTHON"), ""}, {"python3", ""}, {"python3", library}} {
		if try.path == "" {
			continue
		}
		cmd := exec.Command(try.path, "-c", "import numpy")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+try.library)
		if cmd.Run() == nil {
			return try.path, try.library
		}
	}
	return "", ""
})

// newBackend returns a backend whose workers run the handlers in testdata, or
// skips the test when there is no Python for it; in CI it fails.
func newBackend(t testing.TB, o Options) *Backend {
	t.Helper()
	path, library := interpreter()
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs a python3 with numpy")
		}
		t.Skip("no python3 with numpy; set SHOAL_TEST_PYTHON to one")
	}
	handlers, err := filepath.Abs("testdata/handlers")
	if err != nil {
		t.Fatal(err)
	}
	o.Python, o.Cache = path, t.TempDir()
	o.Environ = append(os.Environ(), "PYTHONPATH="+handlers+string(filepath.ListSeparator)+library)
	return New(o)
}

// open opens a model that is run by a handler in testdata.
func open(t testing.TB, b *Backend, handler string, cfg *modelpb.ModelConfig) (backend.Model, error) {
	t.Helper()
	dir := t.TempDir()
	b.handler = handler
	src := backend.Source{Model: cfg.GetName(), Version: 1, Dir: dir, Root: dir}
	model.Normalize(cfg, model.NormalizeOptions{})
	return b.Probe(src).Open(t.Context(), cfg, model.NewSignature(cfg), nil)
}

func TestBackendSuite(t *testing.T) {
	b := newBackend(t, Options{})
	backendtest.Run(t, backendtest.Subject{
		Open: func(t *testing.T, cfg *modelpb.ModelConfig) (backend.Model, error) {
			return open(t, b, "identity", cfg)
		},
	})
}
