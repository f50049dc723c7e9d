package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zipFile writes a zip file with these entries, in pairs of name and content.
func zipFile(t testing.TB, entries ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.Create(entries[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(entries[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return saved(t, b.Bytes())
}

func saved(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.mar")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPackedArchivesExtractToTheSameFiles(t *testing.T) {
	src := t.TempDir()
	for name, text := range map[string]string{"h.py": "def handle(d, c): pass\n", "sub/x.txt": "x", ".git/y": "no", "__pycache__/h.pyc": "no", "old.mar": "no"} {
		path := filepath.Join(src, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, format := range []string{FormatZip, FormatStored, FormatTar, FormatFolder} {
		t.Run(format, func(t *testing.T) {
			out, err := Pack(Packing{Name: "m", Folder: src, Handler: "h:handle", Export: t.TempDir(), Format: format})
			if err != nil {
				t.Fatal(err)
			}
			dir := out
			if format != FormatFolder {
				dir = t.TempDir()
				if err := Extract(out, dir, Limits{}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
				if !d.IsDir() {
					rel, _ := filepath.Rel(dir, path)
					got = append(got, filepath.ToSlash(rel))
				}
				return nil
			})
			if want := "MAR-INF/MANIFEST.json h.py sub/x.txt"; strings.Join(got, " ") != want {
				t.Errorf("got %v, want %s", got, want)
			}
			m, err := ReadManifest(dir)
			if err != nil || m.Model.Name != "m" || m.Model.Handler != "h:handle" || m.Runtime != "python" {
				t.Errorf("got manifest %+v and %v", m.Model, err)
			}
		})
	}
}

func TestPackOfTorchServeTakesSingleFiles(t *testing.T) {
	src := t.TempDir()
	t.Chdir(src)
	for _, name := range []string{"h.py", "m.pt", "a.json", "b.json", "req.txt", "c.yaml"} {
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Packing{
		Name: "m", Version: "2.0", Handler: "h.py", Serialized: "m.pt", Extra: []string{"*.json", "./req.txt"}, Requirements: "req.txt", Config: "c.yaml",
		Export: ".", Now: time.Date(2026, 11, 15, 1, 46, 54, 0, time.UTC),
	}
	out, err := Pack(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(out, dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "MAR-INF", "MANIFEST.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "createdOn": "15/11/2026 01:46:54",
  "runtime": "python",
  "model": {
    "modelName": "m",
    "serializedFile": "m.pt",
    "handler": "h.py",
    "modelVersion": "2.0",
    "requirementsFile": "req.txt",
    "configFile": "c.yaml"
  },
  "archiverVersion": "0.12.0"
}`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	if _, err := Pack(p); !errors.As(err, new(*ErrExists)) {
		t.Errorf("got %v, want that the file exists", err)
	}
	p.Force, p.Handler = true, "image_classifier"
	if _, err := Pack(p); err != nil {
		t.Errorf("a handler of TorchServe's own: %v", err)
	}
	p.Handler = "none.py"
	if _, err := Pack(p); err == nil {
		t.Error("a handler without a file was packed")
	}
	p.Name = "a b"
	if _, err := Pack(p); err == nil || !strings.Contains(err.Error(), "special characters") {
		t.Errorf("got %v, want that the name is refused", err)
	}
}

func TestHostileArchivesWriteNothingOutside(t *testing.T) {
	link := func(target string) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		h := &zip.FileHeader{Name: "l"}
		h.SetMode(fs.ModeSymlink | 0o777)
		w, _ := z.CreateHeader(h)
		_, _ = w.Write([]byte(target))
		w, _ = z.Create("l/x")
		_, _ = w.Write([]byte("x"))
		_ = z.Close()
		return saved(t, b.Bytes())
	}
	tgz := func(h tar.Header) string {
		var b bytes.Buffer
		gz := gzip.NewWriter(&b)
		w := tar.NewWriter(gz)
		_ = w.WriteHeader(&h)
		_ = w.Close()
		_ = gz.Close()
		return saved(t, b.Bytes())
	}
	many := make([]string, 0, 40)
	for i := range 20 {
		many = append(many, strings.Repeat("d/", i)+"f", "")
	}
	cases := []struct {
		name, file string
		limits     Limits
	}{
		{"out of the folder", zipFile(t, "../x", "x"), Limits{}},
		{"out of a folder in it", zipFile(t, "a/../../x", "x"), Limits{}},
		{"absolute", zipFile(t, "/tmp/shoal-x", "x"), Limits{}},
		{"backslashes", zipFile(t, `..\x`, "x"), Limits{}},
		{"link", link("/tmp"), Limits{}},
		{"the same file twice", zipFile(t, "a", "1", "a", "2"), Limits{}},
		{"too large", zipFile(t, "a", strings.Repeat("x", 1000)), Limits{Size: 100}},
		{"too many", zipFile(t, many...), Limits{Files: 10}},
		{"link in a tar file", tgz(tar.Header{Name: "m/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), Limits{}},
		{"hard link in a tar file", tgz(tar.Header{Name: "m/l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), Limits{}},
		{"tar file out of the folder", tgz(tar.Header{Name: "m/../../x", Typeflag: tar.TypeReg}), Limits{}},
		{"device in a tar file", tgz(tar.Header{Name: "m/d", Typeflag: tar.TypeChar}), Limits{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "out")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Extract(c.file, dir, c.limits)
			if !errors.As(err, new(*HostileError)) {
				t.Errorf("got %v, want that it is refused", err)
			}
			if left, _ := os.ReadDir(parent); len(left) != 1 {
				t.Errorf("got %v outside the folder", left)
			}
		})
	}
}

func TestZipBombIsStoppedWhileItIsRead(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("zeros")
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 4 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const ratioFrom = 1 << 20
	dir := t.TempDir()
	if err := Extract(saved(t, b.Bytes()), dir, Limits{RatioFrom: ratioFrom}); !errors.As(err, new(*HostileError)) {
		t.Fatalf("got %v, want that it is refused", err)
	}
	info, err := os.Stat(filepath.Join(dir, "zeros"))
	if err != nil || info.Size() > ratioFrom+1 {
		t.Errorf("got %v bytes written, want no more than %d", info.Size(), ratioFrom+1)
	}
}

func TestManifests(t *testing.T) {
	cases := []struct {
		name, text, model, version, handler string
		bad                                 bool
	}{
		{"of Multi Model Server", `{"runtime":"python","model":{"modelName":"m","handler":"h:f"},"engine":{"engineName":"MXNet","engineVersion":1.2}}`, "m", "", "h:f", false},
		{"of TorchServe", `{"createdOn":"x","model":{"modelName":"m","modelVersion":"1.0","handler":"h.py","extensions":{"a":1}}}`, "m", "1.0", "h.py", false},
		{"with a number as version", `{"model":{"modelName":"m","modelVersion":2.5}}`, "m", "2.5", "", false},
		{"not JSON", `{"model":`, "", "", "", true},
		{"too large", `{"x":"` + strings.Repeat("x", maxManifest) + `"}`, "", "", "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, err := ParseManifest([]byte(c.text))
			if c.bad {
				if !errors.Is(err, ErrManifest) {
					t.Errorf("got %v, want an error", err)
				}
				return
			}
			if err != nil || m.Model.Name != c.model || m.Model.Version.String() != c.version || m.Model.Handler != c.handler {
				t.Errorf("got %+v and %v", m.Model, err)
			}
		})
	}
}

func FuzzExtract(f *testing.F) {
	for _, entries := range [][]string{{"a", "1"}, {"../x", "2"}, {"MAR-INF/MANIFEST.json", `{"model":{"modelName":"m"}}`}} {
		b, err := os.ReadFile(zipFile(f, entries...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "out")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(parent, "a.mar")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = Extract(file, dir, Limits{Size: 1 << 20, Files: 100})
		_, _ = ReadManifest(dir)
		left, err := os.ReadDir(parent)
		if err != nil || len(left) != 2 {
			t.Errorf("got %v outside the folder, and %v", left, err)
		}
		size := int64(0)
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			} else if err == nil && !info.IsDir() {
				t.Errorf("%s is neither a file nor a folder", path)
			}
			return nil
		})
		if size > 1<<20+1 {
			t.Errorf("got %d bytes, want no more than the limit", size)
		}
	})
}
