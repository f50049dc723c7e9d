package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteFilesWritesAFolderOfItsOwn(t *testing.T) {
	temp := t.TempDir()
	dir, err := WriteFiles(temp, map[string][]byte{"1/model.onnx": []byte("graph"), "labels.txt": nil, "2/deep/er": []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(dir) != temp {
		t.Errorf("got folder %s, want one in %s", dir, temp)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "1", "model.onnx")); string(got) != "graph" || err != nil {
		t.Errorf("got %q, %v, want what was given", got, err)
	}
	versions, err := Entry{Name: "m", Dir: dir}.Versions(nil)
	if err != nil || len(versions) != 2 {
		t.Errorf("got versions %v, %v, want 1 and 2", versions, err)
	}
}

func TestWriteFilesLeavesNothingBehindWhenItFails(t *testing.T) {
	temp := t.TempDir()
	many := make(map[string][]byte)
	for i := range maxFiles + 1 {
		many[strings.Repeat("x", i+1)] = nil
	}
	for name, files := range map[string]map[string][]byte{
		"a path that leaves":     {"../x": nil},
		"a file below a file":    {"a": nil, "a/b": nil},
		"a name that is no name": {strings.Repeat("x", 300): nil},
		"too many":               many,
	} {
		if dir, err := WriteFiles(temp, files); err == nil {
			t.Errorf("%s: got %s, want an error", name, dir)
		}
	}
	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("got %v left behind, %v", left, err)
	}
}

// FuzzWriteFiles writes a file under any name: it is refused, or inside the folder.
func FuzzWriteFiles(f *testing.F) {
	for _, name := range []string{"1/model.onnx", "../x", "/etc/passwd", "a/../../b", "", ".", "a//b", "a/./b", "a\\b", "a\x00b", "config.pbtxt"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		temp := t.TempDir()
		dir, err := WriteFiles(temp, map[string][]byte{name: []byte("x")})
		if err != nil {
			return
		}
		path := filepath.Join(dir, name)
		if !strings.HasPrefix(path, dir+string(filepath.Separator)) {
			t.Fatalf("%q leads to %s, outside of %s", name, path, dir)
		}
		if got, err := os.ReadFile(path); string(got) != "x" || err != nil {
			t.Errorf("%q: got %q, %v, want the content", name, got, err)
		}
	})
}
