package repository

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
)

// A Stamp is a hash of the names, sizes and modification times of some files.
// It changes when they do.
type Stamp uint64

// Model returns the desired state of the model: its current folder under cfg,
// with those versions, calling the models in calls.
func (e Entry) Model(cfg *modelpb.ModelConfig, versions []int64, calls []string) (Model, error) {
	instances := &modelpb.ModelConfig{InstanceGroup: cfg.GetInstanceGroup()}
	rest := proto.Clone(cfg).(*modelpb.ModelConfig)
	rest.InstanceGroup, rest.VersionPolicy = nil, nil
	m := Model{Name: e.ID(), Versions: make(map[int64]Stamp, len(versions)), Calls: calls, Files: e.filesStamp()}
	var err error
	if m.Instances, err = digest(instances); err != nil {
		return Model{}, err
	}
	if m.Config, err = digest(rest); err != nil {
		return Model{}, err
	}
	m.Config += e.Dir // a model that has moved to another repository has changed
	for _, n := range versions {
		m.Versions[n] = stamp(e.VersionDir(n), nothing)
	}
	return m, nil
}

// digest returns a hash of a configuration.
func digest(cfg *modelpb.ModelConfig) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cfg)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return string(sum[:]), nil
}

// filesStamp is the stamp of the model's files outside its version folders,
// without its configuration: a configuration that is rewritten with the same
// content has not changed.
func (e Entry) filesStamp() Stamp {
	return stamp(e.Dir, func(name string) bool {
		_, isVersion := parseVersion(name)
		return isVersion || name == "configs" || name == "config.pbtxt"
	})
}

// TreeStamp is the stamp of everything in the model's folder, including the names
// of folders, which may be empty, and what links lead to.
func (e Entry) TreeStamp() Stamp {
	h := fnv.New64a()
	list, err := os.ReadDir(e.Dir)
	if err != nil {
		return 0
	}
	for _, d := range list {
		if d.Name() == pycache {
			continue
		}
		fmt.Fprintf(h, "%s\x00%d\x00", d.Name(), d.Type())
		if d.Type()&fs.ModeSymlink != 0 { // stamp does not follow it
			fmt.Fprintf(h, "%d\x00", stamp(filepath.Join(e.Dir, d.Name()), nothing))
		}
	}
	fmt.Fprintf(h, "%s\x00%d", e.Dir, stamp(e.Dir, nothing))
	return Stamp(h.Sum64())
}

// fileStamp is the stamp of a single file.
func fileStamp(path string, info fs.FileInfo) Stamp {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
	return Stamp(h.Sum64())
}

func nothing(string) bool { return false }

// pycache is the folder that Python writes when it runs a model.
const pycache = "__pycache__"

// stamp is the stamp of the files in dir, without those directly below dir that
// except excludes by name. A file that cannot be read counts by its name:
// loading reports the error.
func stamp(dir string, except func(name string) bool) Stamp {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_ = fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error { // the function only skips
		if except(path) || d != nil && d.Name() == pycache {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil && d.IsDir() {
			return nil
		}
		info, err := os.Stat(filepath.Join(root, path)) // of the target of a link
		switch {
		case err != nil:
			fmt.Fprintf(h, "%s\x00?\x00", path)
		case !info.IsDir():
			fmt.Fprintf(h, "%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return Stamp(h.Sum64())
}
