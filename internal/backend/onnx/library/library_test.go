package library

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// name returns what a library file is called on this system.
func name(version string) string {
	if runtime.GOOS == "darwin" {
		return "libonnxruntime." + version + ".dylib"
	}
	return "libonnxruntime.so." + version
}

// touch makes an empty file and returns its path.
func touch(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// script makes an executable that a test uses in place of Python.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bin", "python3")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindTakesTheFirstPlaceThatHasALibrary(t *testing.T) {
	root := t.TempDir()
	flag, variable := touch(t, root, "flag", name("1.2.3")), touch(t, root, "variable", name("1.2.3"))
	data := touch(t, root, "data", "onnxruntime", "1.30.0", name("1.30.0"))
	python := touch(t, root, "venv", "lib", "python3.12", "site-packages", "onnxruntime", "capi", name("1.20.0"))
	system := touch(t, root, "system", name("1.19.0"))
	p := Places{
		Flag: flag, Variable: variable, Data: filepath.Join(root, "data"),
		Python: filepath.Join(root, "venv", "bin", "python3"), System: []string{filepath.Join(root, "nothing"), filepath.Join(root, "system")},
	}
	for _, step := range []struct {
		want   string
		remove func()
	}{
		{flag, func() { p.Flag = "" }},
		{variable, func() { p.Variable = "" }},
		{data, func() { p.Data = "" }},
		{python, func() { p.Python = "" }},
		{system, func() { p.System = nil }},
	} {
		if got, err := Find(p); err != nil || got != step.want {
			t.Errorf("got %s %v, want %s", got, err, step.want)
		}
		step.remove()
	}
	if _, err := Find(p); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "`shoal runtime install`") {
		t.Errorf("nothing left: got %v, want the error that names the command", err)
	}
}

func TestFindDoesNotPassOverAPathThatTheUserGave(t *testing.T) {
	root := t.TempDir()
	touch(t, root, "onnxruntime", "1.30.0", name("1.30.0"))
	for want, p := range map[string]Places{
		"--onnxruntime-library": {Flag: filepath.Join(root, "none"), Data: root},
		Variable:                {Variable: filepath.Join(root, "none"), Data: root},
	} {
		if got, err := Find(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q %v, want an error that names %s", got, err, want)
		}
	}
}

func TestFindPrefersTheNewestVersion(t *testing.T) {
	root := t.TempDir()
	for _, v := range []string{"1.9.0", "1.30.0", "1.21.1"} {
		touch(t, root, "onnxruntime", v, name(v))
	}
	got, err := Find(Places{Data: root})
	if want := filepath.Join(root, "onnxruntime", "1.30.0", name("1.30.0")); err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}

func TestFindAsksPythonWhereItsPackagesAre(t *testing.T) {
	packages := t.TempDir()
	want := touch(t, packages, "onnxruntime", "capi", name("1.22.0"))
	got, err := Find(Places{Python: script(t, "echo noise\necho "+packages+"\n")})
	if err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
	if _, err := Find(Places{Python: script(t, "exit 1")}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a Python that fails: got %v, want that nothing was found", err)
	}
}

func TestThePythonOfModelsIsLookedAtRatherThanThatOnThePath(t *testing.T) {
	python := script(t, "exit 1")
	venv := filepath.Dir(filepath.Dir(python))
	want := touch(t, venv, "lib", "python3.12", "site-packages", "onnxruntime", "capi", name("1.20.0"))
	environment := map[string]string{PythonVariable: python}
	p := Environment("", func(name string) string { return environment[name] })
	p.Data = ""
	if got, err := Find(p); got != want || err != nil {
		t.Errorf("by the variable: got %q, %v, want %q", got, err, want)
	}
	if got := (Places{Python: "other"}).WithPython(venv).Python; got != python {
		t.Errorf("a virtual environment: got %q, want %q", got, python)
	}
	if got := (Places{Python: "other"}).WithPython("/nonexistent").Python; got != "other" {
		t.Errorf("a path without Python: got %q, want what was there", got)
	}
}

func TestFindStartsNoPythonWhenAnEarlierPlaceHasALibrary(t *testing.T) {
	root := t.TempDir()
	touch(t, root, "onnxruntime", "1.30.0", name("1.30.0"))
	trace := filepath.Join(root, "started")
	if _, err := Find(Places{Data: root, Python: script(t, "touch "+trace)}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("Python was started, want it left alone")
	}
}

func TestDataFolderFollowsTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"XDG_DATA_HOME", map[string]string{"XDG_DATA_HOME": "/xdg", "HOME": "/home/u"}, "/xdg/shoal"},
		{"a relative XDG_DATA_HOME does not count", map[string]string{"XDG_DATA_HOME": "xdg", "HOME": "/home/u"}, "/home/u/.local/share/shoal"},
		{"HOME", map[string]string{"HOME": "/home/u"}, "/home/u/.local/share/shoal"},
		{"neither", nil, ""},
	} {
		if got := DataFolder(func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestListSaysWhyACandidateWillNotDo(t *testing.T) {
	root := t.TempDir()
	path := touch(t, root, "onnxruntime", "1.30.0", name("1.30.0"))
	link := filepath.Join(root, name("1"))
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	list := List(Places{Data: root, System: []string{root}})
	if len(list) != 1 {
		t.Fatalf("got %d candidates, want one: the link is the same file", len(list))
	}
	if list[0].Err == nil || list[0].Origin != FromData {
		t.Errorf("got %+v, want an error from the data folder: the file is empty", list[0])
	}
}

func TestVersionsAreReadFromPaths(t *testing.T) {
	for path, want := range map[string][]int{
		"/x/libonnxruntime.so.1.30.0":    {1, 30, 0},
		"/x/1.21.3/libonnxruntime.dylib": {1, 21, 3},
		"/x/libonnxruntime.so":           nil,
	} {
		if diff := cmp.Diff(want, versionIn(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
