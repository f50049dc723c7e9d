// Package tempdir gives the process one folder for its temporary files, which
// does not outlive it: it is removed at the end, and what a killed process has
// left is removed by the next one. A Dir is safe for concurrent use.
package tempdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// prefix begins the names of the folders in the system's temporary folder.
const prefix = "shoal-run-"

// A Dir is the folder of this process. The zero value is ready for use.
type Dir struct {
	mu   sync.Mutex // protects the fields below
	path string
	lock *os.File // the folder itself, locked while the process lives
}

// Path returns the folder, which the first call makes.
func (d *Dir) Path() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.path == "" {
		path, err := os.MkdirTemp("", prefix)
		if err != nil {
			return "", err
		}
		lock, err := open(path, unix.LOCK_EX)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process swept it away before it was locked
		}
		if err != nil {
			_ = os.Remove(path) // the cause is more important
			return "", err
		}
		d.path, d.lock = path, lock
	}
	return d.path, nil
}

// Close removes the folder and everything in it. The Dir must not be used
// afterwards.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// Sweep removes the folders of this user's processes that have ended without
// Close, and returns how many. What it cannot remove it leaves.
func Sweep() (removed int) {
	found, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return 0
	}
	for _, path := range found {
		lock, err := open(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // in use, or of another user
		}
		if os.RemoveAll(path) == nil {
			removed++
		}
		_ = lock.Close() // the folder is gone
	}
	return removed
}

// open opens and locks a folder of this user. The error is fs.ErrNotExist if it
// was removed meanwhile.
func open(path string, lock int) (*os.File, error) {
	// A link could lead to a folder that is not ours to remove.
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := own(dir, path, lock); err != nil {
		_ = dir.Close() // the cause is more important
		return nil, err
	}
	return dir, nil
}

func own(dir *os.File, path string, lock int) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
		return fs.ErrPermission
	}
	for {
		if err = unix.Flock(int(dir.Fd()), lock); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	now, err := os.Lstat(path)
	if err == nil && !os.SameFile(info, now) {
		err = fs.ErrNotExist
	}
	return err
}
