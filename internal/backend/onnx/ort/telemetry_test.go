package ort_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

const inChild = "SHOAL_TEST_TELEMETRY_CHILD"

// TestTheLibraryKeepsToItself loads the library in a process with a home of its
// own and looks at what it leaves there: telemetry would leave an identifier
// and a database.
func TestTheLibraryKeepsToItself(t *testing.T) {
	path := onnxtest.Library(t)
	if os.Getenv(inChild) != "" {
		if _, err := ort.Open(path, ort.Threads{}); err != nil {
			t.Fatal(err)
		}
		session(t, onnxtest.AddSub(tensor.FP32, 2), ort.Options{})
		return
	}
	home, temp := t.TempDir(), t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTheLibraryKeepsToItself$")
	for _, v := range os.Environ() {
		// CI's own variables would turn telemetry off.
		if name, _, _ := strings.Cut(v, "="); name == "PATH" || name == "LD_LIBRARY_PATH" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, inChild+"=1", "SHOAL_ONNXRUNTIME_LIBRARY="+path, "HOME="+home, "TMPDIR="+temp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{home, temp} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				t.Errorf("the library left %s, want nothing", strings.TrimPrefix(path, dir))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
