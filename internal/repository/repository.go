// Package repository is the model store on disk: the models, their versions,
// configuration files and labels. It reads repositories and never writes to
// them, keeps nothing, and every call reads the disk again, so it is safe for
// concurrent use. The engine decides what to do with what it finds.
package repository

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"shoal/internal/status"
)

// An Entry is the folder of one model.
type Entry struct {
	Name      string
	Namespace string // its repository, when each is a namespace; else empty
	Dir       string
}

// separator stands between the namespace and the name of a model, as in Triton's
// messages.
const separator = "::"

// ID returns what tells the model apart from all others: its name, after its
// namespace if it has one.
func (e Entry) ID() string {
	if e.Namespace == "" {
		return e.Name
	}
	return e.Namespace + separator + e.Name
}

// A Set is the repositories of a server.
type Set struct {
	Roots []string
	// Namespaces makes each repository a namespace, so that several can have
	// models of the same name. Otherwise such models cannot be served.
	Namespaces bool
}

// Scan returns the models of the repositories, sorted by ID, and separately the
// names that more than one repository has, which cannot be served. Files and
// folders whose names begin with a dot are not models.
func (s Set) Scan() (entries []Entry, ambiguous []string, err error) {
	found := map[string][]Entry{} // by ID
	for _, root := range distinct(s.Roots) {
		names, err := subfolders(root)
		if err != nil {
			return nil, nil, rootError(root, err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, ".") {
				e := s.entry(root, name)
				found[e.ID()] = append(found[e.ID()], e)
			}
		}
	}
	for id, list := range found {
		if len(list) > 1 {
			ambiguous = append(ambiguous, id)
		} else {
			entries = append(entries, list[0])
		}
	}
	slices.Sort(ambiguous)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID(), b.ID()) })
	return entries, ambiguous, nil
}

func (s Set) entry(root, name string) Entry {
	e := Entry{Name: name, Dir: filepath.Join(root, name)}
	if s.Namespaces {
		e.Namespace = root
	}
	return e
}

// Find returns the model of that ID, or the only one of that name. An ID without
// a folder is not found; one that leads out of the repositories is an invalid
// argument.
func (s Set) Find(id string) (Entry, error) {
	namespace, name := s.split(id)
	if err := CheckName(name); err != nil {
		return Entry{}, err
	}
	found, err := s.folders(namespace, name)
	if err != nil {
		return Entry{}, err
	}
	switch len(found) {
	case 0:
		return Entry{}, status.Errorf(status.NotFound, "model %q: no repository has a folder of that name%s", id, s.Others(name))
	case 1:
		return found[0], nil
	}
	var dirs []string
	for _, e := range found {
		dirs = append(dirs, e.Dir)
	}
	return Entry{}, status.Errorf(status.AlreadyExists, "model %q: several repositories have it: %s", id, strings.Join(dirs, ", "))
}

// folders returns the models of that name, in one namespace unless that is empty.
func (s Set) folders(namespace, name string) (found []Entry, err error) {
	for _, root := range distinct(s.Roots) {
		if isRemote(root) {
			return nil, rootError(root, errRemote)
		}
		e := s.entry(root, name)
		if info, err := os.Stat(e.Dir); err == nil && info.IsDir() && (namespace == "" || namespace == root) {
			found = append(found, e)
		}
	}
	return found, nil
}

// Named returns the IDs that the models of that name have, or would have: one,
// unless each repository is a namespace.
func (s Set) Named(name string) []string {
	ids := []string{name}
	if s.Namespaces {
		for _, root := range distinct(s.Roots) {
			ids = append(ids, s.entry(root, name).ID())
		}
	}
	return ids
}

// Name returns the name in an ID.
func (s Set) Name(id string) string {
	_, name := s.split(id)
	return name
}

// Namespace returns the namespace in an ID; empty when there is none.
func (s Set) Namespace(id string) string {
	namespace, _ := s.split(id)
	return namespace
}

// split returns the namespace and the name in an ID.
func (s Set) split(id string) (namespace, name string) {
	if s.Namespaces {
		for _, root := range distinct(s.Roots) {
			if name, ok := strings.CutPrefix(id, root+separator); ok {
				return root, name
			}
		}
	}
	return "", id
}

// Others says which models the repositories have instead of one, as the end of
// a sentence.
func (s Set) Others(name string) string {
	var names []string
	for _, root := range distinct(s.Roots) {
		_, folders := listing(root)
		names = append(names, folders...)
	}
	slices.Sort(names)
	if text := near(name, names); text != "" || len(names) == 0 {
		return text
	}
	return "; there are " + some(slices.Compact(names))
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
	advice := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		advice = missing(root)
	case errors.Is(err, syscall.ENOTDIR) && slices.Contains(servable, filepath.Ext(root)):
		advice = fmt.Sprintf("; serve a single file with `shoal serve --model %s`", root)
	}
	return status.Errorf(status.InvalidArgument, "--model-repository %q: %v%s", root, reason(err), advice)
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
