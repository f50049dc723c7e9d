// Package library finds ONNX Runtime's shared library on this machine and
// installs one. The command line and the ONNX backend use it; it prints
// nothing. All of it may be called from several goroutines.
package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Version is the version that Install installs.
const Version = "1.30.0"

// Variable is the environment variable that may hold the library's path.
const Variable = "SHOAL_ONNXRUNTIME_LIBRARY"

// PythonVariable is the environment variable that names the Python of the
// models; its packages are looked at rather than those of the python3 on the
// PATH. The commands that pip installs set it to their own.
const PythonVariable = "SHOAL_PYTHON"

// An Origin is how a library was found.
type Origin string

// The origins, in the order in which Find tries them.
const (
	FromFlag        Origin = "flag"
	FromEnvironment Origin = "environment"
	FromData        Origin = "data folder"
	FromPython      Origin = "python package"
	FromSystem      Origin = "system"
)

// Places are where a library is looked for. The zero value of a field leaves
// that place out.
type Places struct {
	Flag     string   // a path that the user gave
	Variable string   // the value of the environment variable
	Data     string   // Shoal's data folder
	Python   string   // the interpreter whose package is looked at
	System   []string // folders of the system's libraries
}

// Environment returns the places of this process; flag is the path that the
// user gave, if any, and getenv reads the environment.
func Environment(flag string, getenv func(string) string) Places {
	p := Places{Flag: flag, Variable: getenv(Variable), Data: DataFolder(getenv), System: systemFolders(getenv)}
	if python, err := exec.LookPath("python3"); err == nil {
		p.Python = python
	}
	return p.WithPython(getenv(PythonVariable))
}

// WithPython returns the places with another Python: an interpreter or a virtual
// environment. Without a path they stay as they are.
func (p Places) WithPython(path string) Places {
	if path == "" {
		return p
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "bin", "python3")
	}
	if python, err := exec.LookPath(path); err == nil {
		p.Python = python
	}
	return p
}

// DataFolder returns Shoal's own folder for downloads: XDG_DATA_HOME or
// ~/.local/share, then shoal. It is empty when the user has no home.
func DataFolder(getenv func(string) string) string {
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "shoal")
	}
	home := getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "share", "shoal")
}

// Find returns the path of the first library found. A path that the user gave,
// by flag or variable, must exist. Python is started only when no place before
// it has a library.
func Find(p Places) (string, error) {
	for _, given := range []struct{ path, name string }{
		{p.Flag, "--onnxruntime-library"},
		{p.Variable, Variable},
	} {
		if given.path == "" {
			continue
		}
		if _, err := os.Stat(given.path); err != nil {
			return "", fmt.Errorf("%s names a library that cannot be read: %w", given.name, err)
		}
		return filepath.Abs(given.path)
	}
	for _, look := range []func() []string{p.inData, p.inPython, p.inSystem} {
		if paths := look(); len(paths) > 0 {
			return paths[0], nil
		}
	}
	return "", ErrNotFound
}

// ErrNotFound is returned when no library was found; its text says what to do.
var ErrNotFound = fmt.Errorf("ONNX Runtime's library was not found; run `shoal runtime install`, or give its path with --onnxruntime-library or %s", Variable)

// inData returns the libraries installed in the data folder, the newest version
// first.
func (p Places) inData() []string {
	if p.Data == "" {
		return nil
	}
	return newestFirst(filepath.Join(p.Data, "onnxruntime", "*"))
}

// inSystem returns the libraries in the system's folders.
func (p Places) inSystem() []string {
	var paths []string
	for _, dir := range p.System {
		paths = append(paths, newestFirst(dir)...)
	}
	return paths
}

// newestFirst returns the libraries in the folders that match a pattern, those
// of the highest version first.
func newestFirst(pattern string) []string {
	names := "libonnxruntime.so*"
	if runtime.GOOS == "darwin" {
		names = "libonnxruntime.*dylib"
	}
	paths, err := filepath.Glob(filepath.Join(pattern, names))
	if err != nil {
		return nil
	}
	slices.SortStableFunc(paths, func(a, b string) int {
		if c := slices.Compare(versionIn(b), versionIn(a)); c != 0 {
			return c
		}
		return strings.Compare(forGPUs(b), forGPUs(a)) // it runs models on the CPU as well
	})
	return paths
}

// forGPUs is not empty for a library that Install has installed for GPUs.
func forGPUs(path string) string {
	if strings.HasSuffix(filepath.Dir(path), gpuFolder) {
		return gpuFolder
	}
	return ""
}

// systemFolders returns the folders of the system's libraries: those in the
// environment first, then the usual ones.
func systemFolders(getenv func(string) string) []string {
	folders := filepath.SplitList(getenv("LD_LIBRARY_PATH"))
	if runtime.GOOS == "darwin" {
		folders = append(filepath.SplitList(getenv("DYLD_LIBRARY_PATH")), "/opt/homebrew/lib")
	}
	folders = append(folders, "/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib")
	if triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]; triplet != "" {
		folders = append(folders, "/usr/lib/"+triplet, "/lib/"+triplet)
	}
	return slices.DeleteFunc(folders, func(f string) bool { return f == "" })
}
