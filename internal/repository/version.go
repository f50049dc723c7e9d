package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// otherFolders are the folders of a model that are not versions.
var otherFolders = []string{"warmup", "initial_state", "configs", "__pycache__"}

// soleFile is the file that makes a folder without version folders a model with
// one version: the minimal Python model.
const soleFile = "model.py"

// Versions returns the versions that the model has on disk, ascending. Other
// folders are left out; warn, which may be nil, is called for them. A model
// that has model.py in its own folder and no versions has version 1.
func (e Entry) Versions(warn func(msg string)) ([]int64, error) {
	names, err := subfolders(e.Dir)
	if err != nil {
		return nil, e.readError(e.Dir, err)
	}
	var versions []int64
	var others []string
	for _, name := range names {
		if v, ok := parseVersion(name); ok {
			versions = append(versions, v)
		} else if !slices.Contains(otherFolders, name) {
			others = append(others, name)
		}
	}
	if len(versions) == 0 && e.hasSoleFile() {
		return []int64{1}, nil
	}
	for _, name := range others {
		if warn != nil {
			warn(fmt.Sprintf("folder %q of model %q is not a version and is left out: its name is not a number without leading zeros", name, e.Name))
		}
	}
	slices.Sort(versions)
	return versions, nil
}

func (e Entry) hasSoleFile() bool {
	info, err := os.Stat(filepath.Join(e.Dir, soleFile))
	return err == nil && info.Mode().IsRegular()
}

// parseVersion reads the name of a version folder: digits without leading
// zeros. Zero itself is a version.
func parseVersion(name string) (int64, bool) {
	v, err := strconv.ParseInt(name, 10, 64)
	return v, err == nil && strconv.FormatInt(v, 10) == name && v >= 0
}

// VersionDir returns the folder of a version, which is the model's own when it
// has no version folders.
func (e Entry) VersionDir(version int64) string {
	dir := filepath.Join(e.Dir, strconv.FormatInt(version, 10))
	if _, err := os.Stat(dir); os.IsNotExist(err) && e.hasSoleFile() {
		return e.Dir
	}
	return dir
}

// Select returns which of the versions on disk a policy chooses, ascending, and
// which it names that do not exist. A model without a policy has its latest
// version.
func Select(policy *modelpb.ModelVersionPolicy, onDisk []int64) (chosen, missing []int64) {
	have := slices.Compact(slices.Sorted(slices.Values(onDisk)))
	latest := uint32(1)
	switch {
	case policy.GetSpecific() != nil:
		for _, v := range slices.Compact(slices.Sorted(slices.Values(policy.GetSpecific().GetVersions()))) {
			if slices.Contains(have, v) {
				chosen = append(chosen, v)
			} else {
				missing = append(missing, v)
			}
		}
		return chosen, missing
	case policy.GetLatest() != nil:
		latest = policy.GetLatest().GetNumVersions()
	case policy != nil: // all, also when the policy is empty
		return have, nil
	}
	if n := len(have); int64(n) > int64(latest) {
		have = have[n-int(latest):]
	}
	return have, nil
}

// readError adds the model's file to an error of reading it.
func (e Entry) readError(path string, err error) error {
	code := status.Internal
	if os.IsNotExist(err) {
		code = status.NotFound
	}
	if s := status.CodeOf(err); s != status.Internal {
		code = s
	}
	return status.Errorf(code, "model %q: read %s: %v", e.Name, path, reason(err))
}
