package python

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func parameters(pairs ...string) *modelpb.ModelConfig {
	cfg := &modelpb.ModelConfig{Name: "m", Parameters: make(map[string]*modelpb.ModelParameter)}
	for i := 0; i < len(pairs); i += 2 {
		cfg.Parameters[pairs[i]] = &modelpb.ModelParameter{StringValue: pairs[i+1]}
	}
	return cfg
}

func TestParametersOfTheModelGoBeforeTheServersSettings(t *testing.T) {
	b := New(Options{Config: map[string]string{"execution-timeout-seconds": "5", "stub-timeout-seconds": "60", "shm-default-byte-size": "1048576"}})
	s, err := b.settings(backend.Source{Root: "/models/m"}, parameters(
		"SHOAL_EXECUTION_TIMEOUT_SECONDS", "0.5", "SHOAL_ENV_WEIGHTS", "$$TRITON_MODEL_DIRECTORY/w", "FORCE_CPU_ONLY_INPUT_TENSORS", "no", "SHOAL_BATCHING", "auto", "threshold", "mine"))
	if err != nil {
		t.Fatal(err)
	}
	if s.python != "python3" || s.runTimeout != 500*time.Millisecond || s.startTimeout != time.Minute || s.maxResult != defaultMaxResult {
		t.Errorf("got %+v, want python3, 500ms, 1m and the default limit", s)
	}
	if want := []string{"WEIGHTS=/models/m/w"}; !slices.Equal(s.env, want) {
		t.Errorf("environment: got %v, want %v", s.env, want)
	}
}

func TestAllFaultsOfTheSettingsAreTold(t *testing.T) {
	b := New(Options{Config: map[string]string{"shm": "1", "max-result-byte-size": "9"}})
	_, err := b.settings(backend.Source{}, parameters("SHOAL_PYTON", "x", "SHOAL_EXECUTION_TIMEOUT_SECONDS", "soon", "FORCE_CPU_ONLY_INPUT_TENSORS", "2"))
	if status.CodeOf(err) != status.InvalidArgument {
		t.Fatalf("got %v, want an invalid argument", err)
	}
	for _, want := range []string{"python,shm=1:", "max-result-byte-size=9: want", `SHOAL_PYTON is "x": unknown parameter`, `"soon": want a number of seconds`, "want yes or no"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

func TestPythonIsAPathANameOrTheFolderOfAnEnvironment(t *testing.T) {
	venv := t.TempDir()
	touch(t, filepath.Join(venv, "bin", "python3"))
	for _, c := range []struct{ given, want, fault string }{
		{"", "python3", ""},
		{"python3.12", "python3.12", ""},
		{venv, filepath.Join(venv, "bin", "python3"), ""},
		{filepath.Join(venv, "bin", "python3"), filepath.Join(venv, "bin", "python3"), ""},
		{filepath.Join(venv, "none"), "", "cannot be used"},
		{t.TempDir(), "", "has no bin/python3"},
	} {
		got, err := findPython(c.given)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: got %q and %v, want %q and %q", c.given, got, err, c.want, c.fault)
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestWorkersGetDevicesAndThreadsOfTheirOwn(t *testing.T) {
	gpu := modelpb.ModelInstanceGroup_KIND_GPU
	for _, c := range []struct {
		name    string
		environ []string
		place   backend.Placement
		own     []string
		want    []string
		fault   string
	}{
		{"threads are shared out", nil, backend.Placement{Count: 1000}, nil, []string{"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"}, ""},
		{"threads that the user set stay", []string{"OMP_NUM_THREADS=7"}, backend.Placement{Count: 1000}, nil, []string{"OMP_NUM_THREADS=7"}, ""},
		{"the model's own go before all", []string{"OMP_NUM_THREADS=7"}, backend.Placement{}, []string{"OMP_NUM_THREADS=3"}, []string{"OMP_NUM_THREADS=3"}, ""},
		{"one device is visible", nil, backend.Placement{Kind: gpu, GPU: 2}, nil, []string{"CUDA_VISIBLE_DEVICES=2"}, ""},
		{"a device is counted among the server's", []string{"CUDA_VISIBLE_DEVICES=4, 6"}, backend.Placement{Kind: gpu, GPU: 1}, nil, []string{"CUDA_VISIBLE_DEVICES=6"}, ""},
		{"a device that is not there", []string{"CUDA_VISIBLE_DEVICES=4"}, backend.Placement{Kind: gpu, GPU: 1}, nil, nil, "has 1 devices"},
	} {
		b := New(Options{Environ: append([]string{"PYTHONHOME=/elsewhere"}, c.environ...)})
		env, err := b.environment(settings{env: c.own}, c.place)
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.fault)
		}
		for _, want := range c.want {
			if !slices.Contains(env, want) {
				t.Errorf("%s: got %v, want %s among them", c.name, env, want)
			}
		}
		if slices.Contains(env, "PYTHONHOME=/elsewhere") {
			t.Errorf("%s: PYTHONHOME was handed on", c.name)
		}
	}
}

// archive writes a .tar.gz of the entries.
func archive(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, h := range entries {
		content := []byte("content of " + h.Name)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write(content)
		}
	}
	for _, c := range []interface{ Close() error }{w, z, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestAPackedEnvironmentIsUnpackedOnce(t *testing.T) {
	path := archive(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "bin/python3.11", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/python3", Linkname: "python3.11"},
		tar.Header{Typeflag: tar.TypeLink, Name: "bin/python", Linkname: "bin/python3.11"},
		tar.Header{Typeflag: tar.TypeDir, Name: "lib/", Mode: 0o755})
	b := New(Options{Cache: t.TempDir()})
	s, err := b.settings(backend.Source{Root: filepath.Dir(path)}, parameters("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/env.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if s.python != filepath.Join(s.packed, "bin", "python3") {
		t.Errorf("got interpreter %s, want that of %s", s.python, s.packed)
	}
	text, err := os.ReadFile(s.python)
	if err != nil || string(text) != "content of bin/python3.11" {
		t.Errorf("got %q and %v, want the file that the link leads to", text, err)
	}
	mark := filepath.Join(s.packed, "mark")
	touch(t, mark)
	if again, err := b.settings(backend.Source{}, parameters("EXECUTION_ENV_PATH", path)); err != nil || again.packed != s.packed {
		t.Errorf("again: got %s and %v, want %s", again.packed, err, s.packed)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("it was unpacked again: %v", err)
	}
}

func TestAPackedEnvironmentStaysInItsFolder(t *testing.T) {
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"a name that leads out":      {{Typeflag: tar.TypeReg, Name: "../evil", Mode: 0o644}},
		"an absolute name":           {{Typeflag: tar.TypeReg, Name: outside + "/evil", Mode: 0o644}},
		"a link that leads out":      {{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../.."}},
		"a file behind a link":       {{Typeflag: tar.TypeSymlink, Name: "a", Linkname: outside}, {Typeflag: tar.TypeReg, Name: "a/evil", Mode: 0o644}},
		"a hard link that leads out": {{Typeflag: tar.TypeLink, Name: "a", Linkname: "../../etc/passwd"}},
		"a device":                   {{Typeflag: tar.TypeChar, Name: "a"}},
	} {
		cache := t.TempDir()
		b := New(Options{Cache: cache})
		if _, err := b.environmentFolder(archive(t, entries...)); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if list, err := os.ReadDir(cache); err != nil || len(list) > 0 {
			t.Errorf("%s: got %v left in the cache, want nothing", name, list)
		}
		if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
			t.Errorf("%s: got %v outside, want nothing", name, list)
		}
	}
}

func TestTheWorkersCodeIsMendedWhenItWasChanged(t *testing.T) {
	cache := t.TempDir()
	first, err := New(Options{Cache: cache}).code()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(first, "shoal", "_worker.py")
	if err := os.WriteFile(file, []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	second, err := New(Options{Cache: cache}).code()
	if err != nil || second != first {
		t.Fatalf("got %s and %v, want %s", second, err, first)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) == "broken" {
		t.Errorf("got %q and %v, want the code", text, err)
	}
	if list, err := os.ReadDir(cache); err != nil || len(list) != 1 {
		t.Errorf("got %v in the cache, want the one folder", list)
	}
}

func TestTheWorkersCodeIsUnpackedAgainWhenTheCacheWasEmptied(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	b := New(Options{Cache: cache})
	first, err := b.code()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cache); err != nil {
		t.Fatal(err)
	}
	second, err := b.code()
	if err != nil || second != first {
		t.Fatalf("got %s and %v, want %s", second, err, first)
	}
	if _, err := os.Stat(filepath.Join(second, "shoal", "_worker.py")); err != nil {
		t.Errorf("got %v, want the code", err)
	}
}

func TestAPackedEnvironmentIsUnpackedAgainWhenTheCacheWasEmptied(t *testing.T) {
	path := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "bin/python3", Mode: 0o755})
	cache := filepath.Join(t.TempDir(), "cache")
	b := New(Options{Cache: cache})
	cfg := parameters("EXECUTION_ENV_PATH", path)
	set, err := b.settings(backend.Source{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &loaded{backend: b, cfg: cfg, set: set}
	if err := os.RemoveAll(cache); err != nil {
		t.Fatal(err)
	}
	again, err := m.settings()
	if err != nil || again.python != set.python || !exists(again.python) {
		t.Errorf("got %s and %v, want %s, unpacked", again.python, err, set.python)
	}
}
