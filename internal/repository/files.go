package repository

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"shoal/internal/status"
)

// maxFiles bounds the files that a client may send for a model.
const maxFiles = 1000

// WriteFiles writes the files of a model that a client has sent, by their
// paths, into a new folder below temp (the system's temporary folder when
// empty), which the caller must remove. It refuses paths that are not plain
// ones inside the folder before it writes anything.
func WriteFiles(temp string, files map[string][]byte) (dir string, err error) {
	if len(files) > maxFiles {
		return "", status.Errorf(status.InvalidArgument, "the model has %d files, more than the maximum of %d", len(files), maxFiles)
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := checkPath(name); err != nil {
			return "", err
		}
	}
	if dir, err = os.MkdirTemp(temp, "shoal-model-"); err != nil {
		return "", err
	}
	if err := writeAll(dir, names, files); err != nil {
		_ = os.RemoveAll(dir) // the cause is more important
		return "", err
	}
	return dir, nil
}

func writeAll(dir string, names []string, files map[string][]byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		err := root.MkdirAll(path.Dir(name), 0o700)
		if err == nil {
			err = root.WriteFile(name, files[name], 0o600)
		}
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // without our folder's path
		}
		if err != nil {
			return status.Errorf(status.InvalidArgument, "file override '%s': %v", name, err)
		}
	}
	return nil
}

// checkPath refuses a client's path unless it is the plain name of a file inside
// the model's folder.
func checkPath(name string) error {
	if name == "" || name == "." || strings.ContainsAny(name, "\\\x00") || path.Clean(name) != name || !filepath.IsLocal(name) {
		return status.Errorf(status.InvalidArgument, "file override '%s' is not a path inside the model's folder, such as '1/model.onnx'", name)
	}
	return nil
}
