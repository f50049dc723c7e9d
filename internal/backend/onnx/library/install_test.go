package library

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pin replaces the pinned package of this platform by one of the test's with
// that content, and returns the package's path.
func pin(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "onnxruntime-"+Version+"-test.whl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	key := runtime.GOOS + "/" + runtime.GOARCH
	old, had := wheels[key]
	wheels[key] = wheel{"test", hex.EncodeToString(sum[:]), name(Version), nil}
	t.Cleanup(func() {
		if delete(wheels, key); had {
			wheels[key] = old
		}
	})
	return path
}

func whole() map[string]string {
	return map[string]string{
		"onnxruntime/LICENSE": "MIT", "onnxruntime/ThirdPartyNotices.txt": "notices",
		"onnxruntime/capi/" + name(Version): "library", "onnxruntime/other.py": "not wanted",
	}
}

// pip returns a Python whose pip "downloads" the file.
func pip(t *testing.T, file string) string {
	return script(t, `echo fetching
while [ $# -gt 0 ]; do [ "$1" = --dest ] && dest=$2; shift; done
cp "`+file+`" "$dest/"`)
}

func TestInstallUnpacksTheLibraryAndItsLicence(t *testing.T) {
	file := pin(t, whole())
	data := t.TempDir()
	var said strings.Builder
	got, err := Install(t.Context(), InstallOptions{Data: data, Python: pip(t, file), Progress: &said})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, "onnxruntime", Version)
	if want := (Installed{Path: filepath.Join(dir, name(Version)), Version: Version}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("got %v %v, want the library and two licence texts", entries, err)
	}
	if content, err := os.ReadFile(got.Path); err != nil || string(content) != "library" {
		t.Errorf("got %q %v, want the package's library", content, err)
	}
	if !strings.Contains(said.String(), "fetching") {
		t.Errorf("progress: got %q, want what pip said", said.String())
	}
	if found, err := Find(Places{Data: data}); err != nil || found != got.Path {
		t.Errorf("Find: got %s %v, want %s", found, err, got.Path)
	}

	again, err := Install(t.Context(), InstallOptions{Data: data, Python: script(t, "exit 1")})
	if err != nil || !again.Already || again.Path != got.Path {
		t.Errorf("the second time: got %+v %v, want that it is there already", again, err)
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("got %v %v, want nothing left beside the version", left, err)
	}
}

func TestInstallLeavesNothingWhenItFails(t *testing.T) {
	good := pin(t, whole())
	other := filepath.Join(t.TempDir(), filepath.Base(good))
	if err := os.WriteFile(other, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		python string
		want   string
	}{
		{"another package than the pinned one", pip(t, other), "expected sha256:"},
		{"no pip", script(t, "echo '/usr/bin/python3: No module named pip' >&2; exit 1"), "has no pip: install it"},
		{"no network", script(t, "echo 'ERROR: Could not find a version that satisfies the requirement' >&2; exit 1"), "ERROR: Could not find a version that satisfies the requirement; check the network"},
		{"no file", script(t, "exit 0"), "but downloaded 0"},
		{"no Python", filepath.Join(t.TempDir(), "python3"), "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			_, err := Install(t.Context(), InstallOptions{Data: data, Python: c.python})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if left, err := os.ReadDir(filepath.Join(data, "onnxruntime")); err != nil || len(left) != 0 {
				t.Errorf("got %v %v left, want nothing", left, err)
			}
		})
	}
}

func TestInstallRefusesAPackageWithoutTheLibrary(t *testing.T) {
	files := whole()
	delete(files, "onnxruntime/capi/"+name(Version))
	_, err := Install(t.Context(), InstallOptions{Data: t.TempDir(), Python: pip(t, pin(t, files))})
	if err == nil || !strings.Contains(err.Error(), name(Version)) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestInstallStopsWithItsContext(t *testing.T) {
	pin(t, whole())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Install(ctx, InstallOptions{Data: t.TempDir(), Python: script(t, "exec sleep 60")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

func TestInstallNeedsADataFolder(t *testing.T) {
	if _, err := Install(t.Context(), InstallOptions{}); err == nil || !strings.Contains(err.Error(), "XDG_DATA_HOME") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestInstallForGPUsBringsTheProviders(t *testing.T) {
	files := whole()
	key := runtime.GOOS + "/" + runtime.GOARCH
	old, had := gpuWheels[key]
	files["onnxruntime/capi/libonnxruntime_providers_cuda.so"] = "provider"
	file := pin(t, files)
	w := wheels[key]
	w.more = []string{"libonnxruntime_providers_cuda.so"}
	gpuWheels[key] = w
	t.Cleanup(func() {
		if delete(gpuWheels, key); had {
			gpuWheels[key] = old
		}
	})
	data := t.TempDir()
	for _, gpu := range []bool{false, true} {
		if _, err := Install(t.Context(), InstallOptions{Data: data, GPU: gpu, Python: pip(t, file)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Find(Places{Data: data})
	if want := filepath.Join(data, "onnxruntime", Version+"-gpu", name(Version)); err != nil || got != want {
		t.Errorf("got %s %v, want %s: it is for both", got, err, want)
	}
	provider, err := os.ReadFile(filepath.Join(filepath.Dir(got), "libonnxruntime_providers_cuda.so"))
	if err != nil || string(provider) != "provider" {
		t.Errorf("got %q %v, want the provider beside it", provider, err)
	}
}

func TestComponentsSayWhatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), name(Version))
	list := Components(path)
	if got := list[0]; got.Err == nil || got.Hint != "run `shoal runtime install --gpu`" {
		t.Errorf("got %+v, want that the provider is missing and how to get it", got)
	}
	for _, c := range list {
		if (c.Err == nil) == (c.Path == "") || c.Hint == "" {
			t.Errorf("%s: got path %q and error %v, want one of them, and what to install", c.Name, c.Path, c.Err)
		}
	}
}
