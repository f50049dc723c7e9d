package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shoal/internal/spelling"
)

// modelFiles are the files that a version of a model is recognised by, with the
// ending that a single file of its kind has.
var modelFiles = map[string]string{"model.onnx": ".onnx", "model.py": ".py"}

// servable are the endings of files that `shoal serve --model` accepts.
var servable = []string{".onnx", ".py"}

// Advice says why a folder has no model to serve, what was expected, and which
// command would work; "" when it has folders that may be models. The folder is
// one that Scan could read.
func Advice(root string) string {
	files, folders := listing(root)
	single := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return !slices.Contains(servable, filepath.Ext(f)) })
	want := "a repository has a folder for each model, as in " + filepath.Join(root, "NAME", "1", "model.onnx")
	switch {
	case isModel(root):
		return fmt.Sprintf("%s is a model's folder, not a repository: it has %s; serve it with `shoal serve --model %s`",
			root, some(append(slices.Clone(files), folders...)), root)
	case len(folders) > 0:
		return ""
	case len(single) > 0:
		var flags []string
		for _, f := range single {
			flags = append(flags, "--model "+filepath.Join(root, f))
		}
		return fmt.Sprintf("%s has %s and no folders, and %s; serve the files with `shoal serve %s`", root, some(files), want, strings.Join(flags, " "))
	case len(files) > 0:
		return fmt.Sprintf("%s has no folders, only %s, and %s; `shoal serve --demo` serves models to try", root, some(files), want)
	}
	return fmt.Sprintf("%s is empty, and %s; `shoal serve --demo` serves models to try", root, want)
}

// isModel reports whether a folder is that of one model: it has a
// configuration, a model's file, or nothing but version folders with one.
func isModel(dir string) bool {
	files, folders := listing(dir)
	versions := 0
	for _, f := range folders {
		if _, ok := parseVersion(f); ok && hasModelFile(filepath.Join(dir, f)) {
			versions++
		}
	}
	return slices.Contains(files, "config.pbtxt") || versions > 0 && versions == len(folders)
}

// hasModelFile reports whether a folder has a model's file under its usual name.
func hasModelFile(dir string) bool {
	files, _ := listing(dir)
	return slices.ContainsFunc(files, func(f string) bool { return modelFiles[f] != "" })
}

// WithoutVersion says why a model has no version to serve and what would help,
// as the end of a sentence.
func (e Entry) WithoutVersion(onDisk []int64) string {
	if real, err := filepath.EvalSymlinks(e.Dir); err == nil { // --model makes a link
		e.Dir = real
	}
	if len(onDisk) > 0 {
		return fmt.Sprintf("; version_policy chooses none of the versions in %s, which are %s", e.Dir, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(onDisk)), ", "), "[]"))
	}
	files, folders := listing(e.Dir)
	first := filepath.Join(e.Dir, "1")
	for _, f := range files {
		if modelFiles[f] != "" {
			return fmt.Sprintf("; %s has %s but no version folder: `mkdir %s && mv %s %s`", e.Dir, f, first, filepath.Join(e.Dir, f), first)
		}
	}
	for _, f := range folders {
		if isModel(filepath.Join(e.Dir, f)) {
			return fmt.Sprintf("; %s is a repository itself, with the model %s: serve it with --model-repository %s", e.Dir, f, e.Dir)
		}
		if hasModelFile(filepath.Join(e.Dir, f)) {
			return fmt.Sprintf("; the name of a version's folder is a number without leading zeros, and %s has %s: `mv %s %s`", e.Dir, f, filepath.Join(e.Dir, f), first)
		}
	}
	return fmt.Sprintf("; %s has %s and no version folder: put the model's file at %s", e.Dir, some(files), filepath.Join(first, "model.onnx"))
}

// listing returns the names of the files and folders in dir that are not hidden.
func listing(dir string) (files, folders []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case isFolder(filepath.Join(dir, e.Name()), e):
			folders = append(folders, e.Name())
		default:
			files = append(files, e.Name())
		}
	}
	return files, folders
}

// some lists the first of the names.
func some(names []string) string {
	const most = 4
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// near returns the name that was probably meant, as the end of a sentence; ""
// when none is like it.
func near(name string, names []string) string {
	if n := spelling.Nearest(name, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// missing says what a folder that does not exist may have meant.
func missing(root string) string {
	files, folders := listing(filepath.Dir(root))
	if text := near(filepath.Base(root), append(folders, files...)); text != "" {
		return text
	}
	where, err := filepath.Abs(filepath.Dir(root))
	if err != nil {
		where = filepath.Dir(root)
	}
	return fmt.Sprintf("; the folders in %s are %s", where, some(folders))
}
