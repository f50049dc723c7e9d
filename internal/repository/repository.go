// Package repository is the model store on disk: the models, their versions,
// configuration files and labels. It reads repositories and never writes to
// them, keeps nothing, and every call reads the disk again, so it is safe for
// concurrent use. The engine decides what to do with what it finds.
package repository

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shoal/internal/status"
)

// An Entry is the folder of one model.
type Entry struct {
	Name string
	Dir  string
}

// Scan returns the models of the repositories, sorted by name, and separately
// the names that more than one repository has, which cannot be served. Files
// and folders whose names begin with a dot are not models.
func Scan(roots []string) (entries []Entry, ambiguous []string, err error) {
	dirs := map[string][]string{} // the folders of each name
	for _, root := range distinct(roots) {
		names, err := subfolders(root)
		if err != nil {
			return nil, nil, rootError(root, err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, ".") {
				dirs[name] = append(dirs[name], filepath.Join(root, name))
			}
		}
	}
	for name, found := range dirs {
		if len(found) > 1 {
			ambiguous = append(ambiguous, name)
		} else {
			entries = append(entries, Entry{Name: name, Dir: found[0]})
		}
	}
	slices.Sort(ambiguous)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, ambiguous, nil
}

// Find returns the model of that name. A name without a folder, or one that
// leads out of the repositories, is an invalid argument.
func Find(roots []string, name string) (Entry, error) {
	if err := CheckName(name); err != nil {
		return Entry{}, err
	}
	var found []string
	for _, root := range distinct(roots) {
		if isRemote(root) {
			return Entry{}, rootError(root, errRemote)
		}
		dir := filepath.Join(root, name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	switch len(found) {
	case 0:
		return Entry{}, status.Errorf(status.NotFound, "model %q: no repository has a folder of that name", name)
	case 1:
		return Entry{Name: name, Dir: found[0]}, nil
	}
	return Entry{}, status.Errorf(status.AlreadyExists, "model %q: several repositories have it: %s", name, strings.Join(found, ", "))
}

// CheckName refuses names that no model can have: without a letter, or leading
// out of the repositories.
func CheckName(name string) error {
	switch {
	case name == "":
		return status.Errorf(status.InvalidArgument, "Model name cannot be empty. Please enter a valid name to deploy.")
	case strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00"):
		return status.Errorf(status.InvalidArgument, "invalid model name '%s', model name must not contain path traversal characters", name)
	}
	return nil
}

// distinct returns the roots without duplicates.
func distinct(roots []string) []string {
	var out []string
	for _, r := range roots {
		if !isRemote(r) {
			r = filepath.Clean(r)
		}
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// isRemote reports whether a root names an object store.
func isRemote(root string) bool {
	for _, prefix := range []string{"s3://", "gs://", "as://"} {
		if strings.HasPrefix(root, prefix) {
			return true
		}
	}
	return false
}

// errRemote is the error for a root in an object store.
var errRemote = errors.New("object stores are not supported; copy the models into a local folder and give that")

// subfolders returns the sorted names of the folders in dir, including links to
// folders.
func subfolders(dir string) ([]string, error) {
	if isRemote(dir) {
		return nil, errRemote
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range list {
		if isFolder(filepath.Join(dir, e.Name()), e) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// rootError adds the flag to the error of a folder that cannot be read.
func rootError(root string, err error) error {
	return status.Errorf(status.InvalidArgument, "--model-repository %q: %v", root, reason(err))
}

// reason returns the cause of a file error without the path and the call, which
// the surrounding message has.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
