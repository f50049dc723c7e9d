package archive

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Limits bound what an archive may extract to. The zero value of one means the
// default that its line names.
type Limits struct {
	Size  int64 // bytes of all files; 64 GiB
	Files int   // files and folders; 100,000
	// Ratio is how many times its size in the archive a file may have; 200. It counts
	// for files of more than RatioFrom bytes; 64 MiB.
	Ratio, RatioFrom int64
}

func (l Limits) withDefaults() Limits {
	if l.Size == 0 {
		l.Size = 64 << 30
	}
	if l.Files == 0 {
		l.Files = 100_000
	}
	if l.Ratio == 0 {
		l.Ratio = 200
	}
	if l.RatioFrom == 0 {
		l.RatioFrom = 64 << 20
	}
	return l
}

// A HostileError is why an archive is refused that would write where it must not,
// or too much.
type HostileError struct {
	Entry string // the name in the archive
	Why   string
}

// Error implements error.
func (e *HostileError) Error() string { return fmt.Sprintf("archive entry %q %s", e.Entry, e.Why) }

// ErrFormat is the error of a file that is no archive.
var ErrFormat = errors.New("not a zip file")

// Extract writes the content of an archive, a zip file or a tar.gz file, into dir,
// which exists and is empty. After an error dir may have a part of it.
func Extract(file, dir string, limits Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	x := &extraction{root: root, limits: limits.withDefaults()}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var magic [2]byte
	n, _ := io.ReadFull(f, magic[:]) // a shorter file is no archive
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if n == 2 && magic == [2]byte{0x1f, 0x8b} {
		return x.tarball(f)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, info.Size())
	if errors.Is(err, zip.ErrFormat) {
		return ErrFormat
	}
	if err != nil {
		return fmt.Errorf("read the zip file: %w", err)
	}
	return x.zipped(z)
}

// An extraction writes one archive.
type extraction struct {
	root   *os.Root // nothing can be written outside it, also not through links
	limits Limits
	size   int64
	files  int
}

func (x *extraction) zipped(z *zip.Reader) error {
	for _, e := range z.File {
		name, err := x.admit(e.Name)
		if err != nil {
			return err
		}
		mode := e.Mode()
		switch {
		case mode.IsDir() || strings.HasSuffix(e.Name, "/"):
			if err := x.folder(name); err != nil {
				return err
			}
			continue
		case !mode.IsRegular():
			return &HostileError{e.Name, "is a link or a special file"}
		case e.UncompressedSize64 > uint64(x.limits.Size-x.size):
			return x.tooLarge(e.Name)
		}
		r, err := e.Open()
		if err != nil {
			return fmt.Errorf("archive entry %q: %w", e.Name, err)
		}
		err = x.file(e.Name, name, r, int64(e.CompressedSize64))
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// tarball writes the content of a tar.gz file without its top folder.
func (x *extraction) tarball(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	gz, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return fmt.Errorf("read the tar.gz file: %w", err)
	}
	t := tar.NewReader(gz)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar.gz file: %w", err)
		}
		full, err := x.admit(h.Name)
		if err != nil {
			return err
		}
		_, name, inside := strings.Cut(full, string(filepath.Separator))
		switch h.Typeflag {
		case tar.TypeDir:
			if inside {
				err = x.folder(name)
			}
		case tar.TypeReg:
			if !inside { // a file beside the top folder
				name = full
			}
			err = x.file(h.Name, name, t, info.Size())
		case tar.TypeXGlobalHeader:
		default:
			err = &HostileError{h.Name, "is a link or a special file"}
		}
		if err != nil {
			return err
		}
	}
}

// admit checks the name of an entry and returns it as a path below the folder.
func (x *extraction) admit(name string) (string, error) {
	if x.files++; x.files > x.limits.Files {
		return "", &HostileError{name, fmt.Sprintf("is one of more than %d entries", x.limits.Files)}
	}
	if strings.ContainsAny(name, "\\\x00") || strings.HasPrefix(name, "/") {
		return "", &HostileError{name, "has an absolute path or characters that are not allowed"}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", &HostileError{name, "leads out of the archive"}
		}
	}
	local := filepath.Clean(filepath.FromSlash(name))
	if !filepath.IsLocal(local) {
		return "", &HostileError{name, "leads out of the archive"}
	}
	return local, nil
}

func (x *extraction) folder(name string) error {
	if name == "." {
		return nil
	}
	return x.root.MkdirAll(name, 0o755)
}

// file writes one file, which has packed bytes in the archive.
func (x *extraction) file(entry, name string, r io.Reader, packed int64) error {
	if err := x.folder(filepath.Dir(name)); err != nil {
		return err
	}
	w, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return &HostileError{entry, "is there twice"}
	}
	if err != nil {
		return err
	}
	most := x.limits.Size - x.size
	byRatio := max(x.limits.RatioFrom, packed*x.limits.Ratio)
	n, err := io.Copy(w, io.LimitReader(r, min(most, byRatio)+1))
	err = errors.Join(err, w.Close())
	x.size += n
	switch {
	case err != nil:
		return fmt.Errorf("archive entry %q: %w", entry, err)
	case n > most:
		return x.tooLarge(entry)
	case n > byRatio:
		return &HostileError{entry, fmt.Sprintf("is more than %d times as large as in the archive", x.limits.Ratio)}
	}
	return nil
}

func (x *extraction) tooLarge(entry string) error {
	return &HostileError{entry, fmt.Sprintf("makes the archive larger than %d bytes", x.limits.Size)}
}

// Verify reads an archive completely and
// returns its manifest, without keeping anything.
func Verify(file string, limits Limits) (Manifest, error) {
	dir, err := os.MkdirTemp("", "shoal-archive-")
	if err != nil {
		return Manifest{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return ReadManifest(file)
	}
	if err := Extract(file, dir, limits); err != nil {
		return Manifest{}, err
	}
	return ReadManifest(dir)
}
