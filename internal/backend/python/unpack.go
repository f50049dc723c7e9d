package python

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// unpacker returns a function that returns the folder with the worker's code,
// and writes it whenever it is missing: cache folders may be emptied while a
// server runs, and a restarted worker needs the code again. It may be called
// from many goroutines.
func unpacker(files fs.FS, cache func() (string, error)) func() (string, error) {
	var mu sync.Mutex
	var last string
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		content, _, err := readCode(files)
		if err != nil {
			return "", err
		}
		if last != "" && sameCode(last, content) {
			return last, nil // also when nothing can be written any more
		}
		folder, err := cache()
		if err != nil {
			return "", err
		}
		last, err = unpackCode(files, folder)
		return last, err
	}
}

// unpackCode writes the worker's code into the cache, unless it is there, and
// returns its folder. The folder's name is a hash of the content, so that
// servers of different builds do not share it.
func unpackCode(files fs.FS, cache string) (string, error) {
	content, name, err := readCode(files)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "python-"+name)
	if sameCode(folder, content) {
		return folder, nil
	}
	err = intoPlace(folder, func(temp string) error {
		for path, data := range content {
			to := filepath.Join(temp, filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(to, data, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !sameCode(folder, content) {
		return "", fmt.Errorf("unpack the Python worker: %w", err)
	}
	return folder, nil
}

// readCode returns the files by their paths and a hash of all of them.
func readCode(files fs.FS) (map[string][]byte, string, error) {
	content, sum := make(map[string][]byte), sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		content[path] = data
		fmt.Fprintf(sum, "%s %d\n", path, len(data))
		sum.Write(data)
		return nil
	})
	return content, hex.EncodeToString(sum.Sum(nil))[:16], err
}

// sameCode reports whether a folder has these files.
func sameCode(folder string, content map[string][]byte) bool {
	for path, want := range content {
		got, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(path)))
		if err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// intoPlace lets fill write a folder beside the target and then renames it, so
// that nobody sees a partial one. If another process was faster it fails; that
// process's folder is equally good.
func intoPlace(folder string, fill func(temp string) error) error {
	parent := filepath.Dir(folder)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, ".unpack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // after the renaming it is gone
	inside := filepath.Join(temp, "content")
	if err := os.Mkdir(inside, 0o755); err != nil {
		return err
	}
	if err := fill(inside); err != nil {
		return err
	}
	if _, err := os.Lstat(folder); err == nil {
		if err := os.Rename(folder, filepath.Join(temp, "old")); err != nil {
			return err
		}
	}
	return os.Rename(inside, folder)
}
