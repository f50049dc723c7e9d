package library

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// inPython returns the libraries inside Python's onnxruntime package. If
// Python's folders are in their usual places, they are found without starting
// Python, which would take longer than the rest of a server's start.
func (p Places) inPython() []string {
	if p.Python == "" {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(p.Python))
	for _, packages := range []string{"site-packages", "dist-packages"} {
		if paths := newestFirst(filepath.Join(prefix, "lib", "python3*", packages, "onnxruntime", "capi")); len(paths) > 0 {
			return paths
		}
	}
	return askPython(p.Python)
}

// pythonPatience is how long Python may take to say where its packages are.
const pythonPatience = 10 * time.Second

// locate prints the folders that have the package. It does not import the
// package: that takes a second and loads the library. It skips the empty entry
// of the path, which means the working directory.
const locate = `import os, sys
for d in sys.path:
    if d and os.path.isdir(os.path.join(d, "onnxruntime", "capi")): print(d)`

// askPython starts Python to learn where its packages are.
func askPython(python string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), pythonPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", locate)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil // a Python that does not work has no usable package
	}
	var paths []string
	for dir := range strings.Lines(string(out)) {
		paths = append(paths, newestFirst(filepath.Join(strings.TrimSpace(dir), "onnxruntime", "capi"))...)
	}
	return paths
}
