package modelstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"shoal/internal/archive"
)

// resolve returns the folder with the content of the archive at url. When own is
// set it was made for this, and must be removed.
func (s *Store) resolve(ctx context.Context, url string) (dir string, own bool, err error) {
	if s.opt.Dialect == TorchServe {
		return s.resolveTS(ctx, url)
	}
	if isHTTP(url) {
		file, err := s.download(ctx, url)
		if err != nil {
			return "", false, err
		}
		defer func() { _ = os.Remove(file) }()
		dir, err = s.extract(url, file)
		return dir, err == nil, err
	}
	switch {
	case strings.Contains(url, ".."):
		return "", false, errorf(404, kindNotFound, "Relative path is not allowed in url: %s", url)
	case s.opt.Folder == "":
		return "", false, errorf(404, kindNotFound, "Model store has not been configured.")
	}
	file := filepath.Join(s.opt.Folder, filepath.FromSlash(url))
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "", false, errorf(404, kindNotFound, "Model not found in model store: %s", url).because(err)
	case info.IsDir():
		dir, err = filepath.Abs(file)
		return dir, false, err
	}
	dir, err = s.extract(url, file)
	return dir, err == nil, err
}

// resolveTS is resolve with the rules of TorchServe.
func (s *Store) resolveTS(ctx context.Context, url string) (dir string, own bool, err error) {
	switch {
	case url == "":
		return "", false, errorf(404, kindNotFound, "empty url")
	case strings.Contains(url, ".."):
		return "", false, errorf(404, kindNotFound, "Relative path is not allowed in url: %s", url)
	case s.opt.Folder == "":
		return "", false, errorf(404, kindNotFound, "Model store has not been configured.")
	}
	file := url
	switch name, isFile := strings.CutPrefix(url, "file://"); {
	case isFile, isHTTP(url):
		if file, err = s.keep(ctx, url, name, isFile); err != nil {
			return "", false, err
		}
	case !filepath.IsAbs(url):
		file = filepath.Join(s.opt.Folder, filepath.FromSlash(url))
		if _, err := os.Stat(file); err != nil {
			file = filepath.Join(s.opt.Folder, path.Base(url)) // as the original, which takes the last part alone
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", false, errorf(404, kindNotFound, "Model not found at: %s", url).because(err)
	}
	if info.IsDir() {
		if path.Clean(url) == "." {
			return "", false, errorf(500, kindInternal, "Model file already exists %s", url)
		}
		dir, err = filepath.Abs(file)
		return inner(dir), false, err
	}
	dir, err = s.extract(url, file)
	return dir, err == nil, err
}

// inner returns the only folder in dir, when there is nothing else in it.
func inner(dir string) string {
	list, err := os.ReadDir(dir)
	if err == nil && len(list) == 1 && list[0].IsDir() && list[0].Name() != "MAR-INF" {
		return filepath.Join(dir, list[0].Name())
	}
	return dir
}

// keep brings an archive into the model store, under its own name.
func (s *Store) keep(ctx context.Context, url, local string, isFile bool) (string, error) {
	name := path.Base(strings.SplitN(url, "?", 2)[0])
	to := filepath.Join(s.opt.Folder, name)
	if _, err := os.Lstat(to); err == nil {
		return "", errorf(500, kindInternal, "Model file already exists %s", name)
	}
	var from string
	var err error
	if isFile {
		if from, err = s.copyFile(local); err != nil {
			return "", errorf(400, kindDownloadTS, "Failed to download archive from: %s", url).because(err)
		}
	} else if from, err = s.download(ctx, url); err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(from) }() // nothing when it was moved
	if err := moveFile(from, to); err != nil {
		return "", errorf(500, kindInternal, "Failed to save model: %s", url).because(err)
	}
	return to, nil
}

func (s *Store) copyFile(from string) (string, error) {
	r, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer r.Close()
	f, err := os.CreateTemp(s.temp, "download-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, r)
	return f.Name(), errors.Join(err, f.Close())
}

// moveFile moves a file, also to another file system.
func moveFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// extract extracts an archive into a new folder.
func (s *Store) extract(url, file string) (string, error) {
	dir, err := os.MkdirTemp(s.temp, "model-")
	if err != nil {
		return "", err
	}
	err = s.extractTo(file, dir)
	var hostile *archive.HostileError
	switch {
	case err == nil, errors.Is(err, archive.ErrFormat):
		return cmp.Or(s.innerOf(dir), dir), nil // a file that is no archive counts as an empty one
	case errors.As(err, &hostile) && s.opt.Dialect == MMS:
		err = errorf(400, kindInvalid, "Failed to extract model: %s", hostile)
	default:
		err = errorf(500, kindInternal, "Failed to save model: %s", url).because(err)
	}
	_ = os.RemoveAll(dir)
	return "", err
}

func (s *Store) innerOf(dir string) string {
	if s.opt.Dialect == TorchServe {
		return inner(dir)
	}
	return dir
}

func (s *Store) extractTo(file, dir string) error {
	if s.opt.Dialect == MMS && isGzip(file) {
		return archive.ErrFormat // only TorchServe takes tar.gz files
	}
	return archive.Extract(file, dir, archive.Limits{})
}

func isGzip(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [2]byte
	n, _ := io.ReadFull(f, magic[:])
	return n == 2 && magic == [2]byte{0x1f, 0x8b}
}

// isHTTP reports whether a url is one that is fetched.
func isHTTP(url string) bool {
	low := strings.ToLower(url[:min(len(url), 8)])
	return strings.HasPrefix(low, "http://") || strings.HasPrefix(low, "https://")
}
