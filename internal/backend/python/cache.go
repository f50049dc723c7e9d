package python

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// usableCache returns the folder for unpacked files: the first one if it can be
// written to, otherwise the spare one. A server in a container often has no
// home, or a read-only one.
func usableCache(cache, spare string) (string, error) {
	first := writable(cache)
	if first == nil {
		return cache, nil
	}
	second := os.MkdirAll(spare, 0o700)
	if second == nil {
		second = private(spare)
	}
	if second == nil {
		second = writable(spare)
	}
	if second == nil {
		return spare, nil
	}
	return "", fmt.Errorf("there is no folder to unpack the Python worker into (%w; %w); set HOME, XDG_CACHE_HOME or TMPDIR", first, second)
}

// writable makes a folder if necessary and returns an error if files cannot be
// made in it.
func writable(folder string) error {
	if folder == "" {
		return errors.New("the user has no cache folder")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	probe, err := os.CreateTemp(folder, ".probe-")
	if err != nil {
		return err
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

// private returns why a folder in a shared place cannot be trusted with code:
// it is a link, or others own it or may write to it.
func private(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o022 != 0 || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder that this user alone can write to", folder)
	}
	return nil
}
