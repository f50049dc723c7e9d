package repository

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"shoal/internal/status"
)

// WarmupData reads a file of the model's folder warmup, which has the data of an
// input.
func (e Entry) WarmupData(file string) ([]byte, error) {
	if !filepath.IsLocal(file) {
		return nil, status.Errorf(status.InvalidArgument, "model %q: input_data_file %q leaves the model's folder", e.Name, file)
	}
	path := filepath.Join(e.Dir, "warmup", file)
	content, err := readFile(path)
	if err != nil {
		return nil, e.readError(path, err)
	}
	return content, nil
}

// Leaves reports whether a file of a folder is outside of it once links are
// followed. One that is not there is not.
func Leaves(folder, file string) bool {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	path, err := filepath.EvalSymlinks(filepath.Join(folder, file))
	if err != nil {
		return false
	}
	within, err := filepath.Rel(root, path)
	return err != nil || !filepath.IsLocal(within)
}

// Labels reads a label file of the model: one label per line, in the order of
// the classes. The file's name comes from a configuration, which a client may
// have sent, so a path that leaves the model's folder is refused.
func (e Entry) Labels(file string) ([]string, error) {
	if !filepath.IsLocal(file) {
		return nil, status.Errorf(status.InvalidArgument, "model %q: label_filename %q leaves the model's folder", e.Name, file)
	}
	path := filepath.Join(e.Dir, file)
	content, err := readFile(path)
	if err != nil {
		return nil, e.readError(path, err)
	}
	text := string(content)
	if !utf8.ValidString(text) {
		return nil, status.Errorf(status.InvalidArgument, "model %q: labels in %s are not UTF-8", e.Name, path)
	}
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\n"), nil
}
