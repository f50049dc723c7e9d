package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The forms in which an archive is written.
const (
	FormatZip    = "default"    // NAME.mar
	FormatStored = "zip-store"  // NAME.mar without compression
	FormatTar    = "tgz"        // NAME.tar.gz, with everything in a folder NAME
	FormatFolder = "no-archive" // a folder NAME
)

// A Packing says what Pack writes. The first group is for both archivers.
type Packing struct {
	Name    string
	Handler string
	Runtime string
	Format  string // one of the formats; empty means FormatZip
	Export  string // the folder for the result
	Force   bool   // replace what is there

	// Folder is the model's folder, for archives of Multi Model Server; the fields
	// below are for those of TorchServe.
	Folder string

	Version      string
	Serialized   string
	ModelFile    string
	Extra        []string // files, folders and patterns
	Requirements string
	Config       string
	Now          time.Time
}

// ErrExists is the error of a result that is there already.
type ErrExists struct{ Path string }

// Error implements error.
func (e *ErrExists) Error() string {
	return e.Path + " already exists.\nPlease specify --force/-f option to overwrite the model archive output file.\nSee -h/--help for more details."
}

// An item is a file of an archive.
type item struct {
	name string // in the archive
	path string // on the disk; empty when data has the content
	data []byte
}

// builtIn are the handlers of TorchServe that need no file.
var builtIn = []string{
	"image_classifier", "image_segmenter", "object_detector", "text_classifier", "text_classification_scriptable", "base_handler",
}

// sameFile reports whether two paths are one file, such as requirements.txt that is
// named as an extra file as well.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// Pack writes an archive and returns its path.
func Pack(p Packing) (string, error) {
	if err := checkName(p.Name); err != nil {
		return "", err
	}
	out := filepath.Join(p.Export, p.Name)
	switch p.Format {
	case "", FormatZip, FormatStored:
		out += ".mar"
	case FormatTar:
		out += ".tar.gz"
	case FormatFolder:
	default:
		return "", fmt.Errorf("--archive-format is %q, want default, zip-store, tgz or no-archive", p.Format)
	}
	if info, err := os.Stat(cmpOr(p.Export, ".")); err != nil || !info.IsDir() {
		return "", fmt.Errorf("--export-path %s is not a folder", p.Export)
	}
	if _, err := os.Lstat(out); err == nil && !p.Force {
		return "", &ErrExists{out}
	}
	items, err := p.items()
	if err != nil {
		return "", err
	}
	manifest, err := p.manifest()
	if err != nil {
		return "", err
	}
	items = append(items, item{name: ManifestPath, data: manifest})
	slices.SortStableFunc(items, func(a, b item) int { return strings.Compare(a.name, b.name) })
	items = slices.CompactFunc(items, func(a, b item) bool { return a.name == b.name && sameFile(a.path, b.path) })
	for i := 1; i < len(items); i++ {
		if items[i].name == items[i-1].name {
			return "", fmt.Errorf("two files would be %s in the archive: %s and %s", items[i].name, items[i-1].path, items[i].path)
		}
	}
	if p.Format == FormatFolder {
		return out, writeFolder(out, items, p.Force)
	}
	return out, writeFile(out, func(w io.Writer) error {
		if p.Format == FormatTar {
			return writeTar(w, p.Name, items)
		}
		return writeZip(w, items, p.Format != FormatStored)
	})
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// items returns the files of the archive besides its manifest.
func (p *Packing) items() ([]item, error) {
	if p.Folder != "" {
		return folderItems(p.Folder)
	}
	var items []item
	add := func(path string) { items = append(items, item{name: filepath.Base(path), path: path}) }
	for _, f := range []string{p.Serialized, p.ModelFile, p.Requirements, p.Config} {
		if f != "" {
			add(f)
		}
	}
	handler, _, _ := strings.Cut(p.Handler, ":")
	if !slices.Contains(builtIn, handler) {
		if _, err := os.Stat(handler); err != nil && !strings.HasSuffix(handler, ".py") {
			handler += ".py"
		}
		add(handler)
	}
	for _, given := range p.Extra {
		found, err := filepath.Glob(given)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("--extra-files: there is no file %s", given)
		}
		for _, path := range found {
			info, err := os.Stat(path)
			if err != nil {
				return nil, err
			}
			if !info.IsDir() {
				add(path)
				continue
			}
			below, err := folderItems(path) // its content goes to the top of the archive
			if err != nil {
				return nil, err
			}
			items = append(items, below...)
		}
	}
	for _, it := range items {
		if _, err := os.Stat(it.path); err != nil {
			return nil, fmt.Errorf("%s: %w", it.path, errors.Unwrap(err))
		}
	}
	return items, nil
}

// folderItems returns the files of a folder that belong into an archive.
func folderItems(dir string) ([]item, error) {
	var items []item
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || name == "__MACOSX" || name == "__pycache__") {
				return filepath.SkipDir
			}
			return nil
		}
		if name == ".DS_Store" || name == "MANIFEST.json" || strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, ".mar") {
			return nil
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err // neither links to nowhere nor sockets
		}
		rel, err := filepath.Rel(dir, path)
		items = append(items, item{name: filepath.ToSlash(rel), path: path})
		return err
	})
	return items, err
}

// manifest returns the archive's manifest.
func (p *Packing) manifest() ([]byte, error) {
	type model struct {
		Name         string `json:"modelName"`
		Serialized   string `json:"serializedFile,omitempty"`
		Handler      string `json:"handler"`
		ModelFile    string `json:"modelFile,omitempty"`
		Version      string `json:"modelVersion,omitempty"`
		Requirements string `json:"requirementsFile,omitempty"`
		Config       string `json:"configFile,omitempty"`
	}
	base := func(path string) string {
		if path == "" {
			return ""
		}
		return filepath.Base(path)
	}
	if p.Folder != "" {
		return marshal(struct {
			Runtime string `json:"runtime"`
			Model   model  `json:"model"`
			Server  string `json:"modelServerVersion"`
			Implem  string `json:"implementationVersion"`
			Spec    string `json:"specificationVersion"`
		}{cmpOr(p.Runtime, "python"), model{Name: p.Name, Handler: p.Handler}, "1.0", "1.0", "1.0"})
	}
	return marshal(struct {
		Created  string `json:"createdOn"`
		Runtime  string `json:"runtime"`
		Model    model  `json:"model"`
		Archiver string `json:"archiverVersion"`
	}{p.Now.Format("02/01/2006 15:04:05"), cmpOr(p.Runtime, "python"), model{
		Name: p.Name, Serialized: base(p.Serialized), Handler: base(p.Handler), ModelFile: base(p.ModelFile),
		Version: p.Version, Requirements: base(p.Requirements), Config: base(p.Config),
	}, "0.12.0"})
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// open returns the content and the size of an item.
func (it *item) open() (io.ReadCloser, int64, error) {
	if it.path == "" {
		return io.NopCloser(bytes.NewReader(it.data)), int64(len(it.data)), nil
	}
	f, err := os.Open(it.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (it *item) copyTo(w io.Writer) error {
	r, _, err := it.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// writeFile writes a file under another name first, so that there is never half of
// one.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".shoal-archive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing once it has its name
	err = write(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder; remove it first", path)
	}
	return os.Rename(f.Name(), path)
}

func writeZip(w io.Writer, items []item, compress bool) error {
	z := zip.NewWriter(w)
	for i := range items {
		h := &zip.FileHeader{Name: items[i].name, Method: zip.Store}
		if compress {
			h.Method = zip.Deflate
		}
		h.SetMode(0o644)
		entry, err := z.CreateHeader(h)
		if err == nil {
			err = items[i].copyTo(entry)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

func writeTar(w io.Writer, top string, items []item) error {
	gz := gzip.NewWriter(w)
	t := tar.NewWriter(gz)
	for i := range items {
		r, size, err := items[i].open()
		if err != nil {
			return err
		}
		err = t.WriteHeader(&tar.Header{Name: top + "/" + items[i].name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.CopyN(t, r, size)
		}
		r.Close()
		if err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), gz.Close())
}

func writeFolder(dir string, items []item, force bool) error {
	if force {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for i := range items {
		to := filepath.Join(dir, filepath.FromSlash(items[i].name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := writeFile(to, items[i].copyTo); err != nil {
			return err
		}
	}
	return nil
}
