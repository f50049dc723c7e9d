package python

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"shoal/internal/status"
)

// environmentFolder returns the folder of an environment: the path itself when
// it is one, otherwise the unpacked archive.
func (b *Backend) environmentFolder(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", status.Errorf(status.Unavailable, "parameters: %s: %v", paramEnvPath, err)
	}
	if info.IsDir() {
		return path, nil
	}
	b.unpacking.Lock() // instances and models with the same archive wait for the first
	defer b.unpacking.Unlock()
	cache, err := b.cache()
	if err != nil {
		return "", status.Errorf(status.Unavailable, "parameters: %s: %v", paramEnvPath, err)
	}
	folder, err := unpackArchive(path, info, cache)
	if err != nil {
		return "", status.Errorf(status.Unavailable, "parameters: %s: unpack %s: %v", paramEnvPath, path, err)
	}
	return folder, nil
}

// unpackArchive unpacks a .tar.gz of conda-pack into the cache, unless it is
// there, and returns its folder. The archive is identified by its path, size
// and time: hashing gigabytes would take longer than unpacking.
func unpackArchive(path string, info fs.FileInfo, cache string) (string, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", whole, info.Size(), info.ModTime().UnixNano()))
	folder := filepath.Join(cache, "env-"+hex.EncodeToString(sum[:])[:16])
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	err = intoPlace(folder, func(temp string) error { return extract(whole, temp) })
	if _, statErr := os.Stat(folder); err != nil && statErr != nil {
		return "", err
	}
	return folder, nil
}

// extract writes the content of an archive into a folder. An os.Root keeps
// everything inside, whatever names and links the archive has.
func extract(path, to string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("it is not a .tar.gz: %w", err)
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extractEntry(root, h, r); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

func extractEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := filepath.Clean(filepath.FromSlash(h.Name))
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("the name leads out of the archive")
	}
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return extractFile(root, name, h.FileInfo().Mode().Perm(), content)
	case tar.TypeSymlink:
		return extractLink(root, name, h.Linkname)
	case tar.TypeLink:
		return root.Link(filepath.Clean(filepath.FromSlash(h.Linkname)), name)
	}
	return fmt.Errorf("entries of type %q are not for environments", h.Typeflag)
}

// extractLink makes a symbolic link. Packed virtual environments have absolute
// links to the interpreter. They may be read through later, but nothing in the
// archive is written through them: the root prevents that.
func extractLink(root *os.Root, name, target string) error {
	if !filepath.IsAbs(target) && !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
		return fmt.Errorf("the link to %q leads out of the archive", target)
	}
	return root.Symlink(target, name)
}

func extractFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) (err error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o200)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content)
	return err
}
