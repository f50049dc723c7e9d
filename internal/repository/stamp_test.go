package repository

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"shoal/internal/model/modelpb"
)

// TestModelChangesWithWhatItStandsFor changes one thing at a time and looks which
// part of the model tells.
func TestModelChangesWithWhatItStandsFor(t *testing.T) {
	const text = `max_batch_size: 8 instance_group { count: 1 } parameters { key: "k" value { string_value: "v" } } version_policy { all { } }`
	write := func(path ...string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			file := filepath.Join(append([]string{dir}, path...)...)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("longer than before"), 0o644); err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	config := func(text string) func(*testing.T, string) string {
		return func(*testing.T, string) string { return text }
	}
	tests := []struct {
		name   string
		change func(t *testing.T, dir string) string
		want   string // which part changes
	}{
		{"nothing", config(text), ""},
		{"the version policy", config(`max_batch_size: 8 instance_group { count: 1 } parameters { key: "k" value { string_value: "v" } }`), ""},
		{"the instances", config(text + `instance_group { count: 2 }`), "instances"},
		{"the batch size", config(text + `name: "other"`), "config"},
		{"the model's file", write("1", "model.onnx"), "version 1"},
		{"a file deep in the version", write("1", "a", "b", "weights"), "version 1"},
		{"another version's file", write("2", "model.onnx"), ""},
		{"what Python keeps", write("1", "__pycache__", "model.pyc"), ""},
		{"a label file", write("labels.txt"), "files"},
		{"the configuration's file with the same content", write("config.pbtxt"), ""},
		{"the time of a file", func(t *testing.T, dir string) string {
			if err := os.Chtimes(filepath.Join(dir, "1", "model.onnx"), time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			return text
		}, "version 1"},
		{"a file is gone", func(t *testing.T, dir string) string {
			if err := os.Remove(filepath.Join(dir, "1", "model.onnx")); err != nil {
				t.Fatal(err)
			}
			return text
		}, "version 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "m")
			for _, path := range []string{"config.pbtxt", "labels.txt", "1/model.onnx", "2/model.onnx"} {
				write(path)(t, dir)
				if err := os.WriteFile(filepath.Join(dir, path), []byte("x"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			link := filepath.Join(t.TempDir(), "link") // a model's folder may be a link
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			model := func(text string) Model {
				cfg := &modelpb.ModelConfig{}
				if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
					t.Fatal(err)
				}
				m, err := Entry{Name: "m", Dir: link}.Model(cfg, []int64{1}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			before := model(text)
			after := model(tt.change(t, dir))
			got := map[string]bool{
				"config": before.Config != after.Config, "instances": before.Instances != after.Instances,
				"files": before.Files != after.Files, "version 1": before.Versions[1] != after.Versions[1],
			}
			for part, changed := range got {
				if changed != (part == tt.want) {
					t.Errorf("%s: got changed %v, want %v", part, changed, part == tt.want)
				}
			}
		})
	}
}

func TestTreeStampChangesWithEverythingInTheFolder(t *testing.T) {
	dir, linked := t.TempDir(), t.TempDir()
	e := Entry{Name: "m", Dir: filepath.Join(dir, "m")}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(e.Dir, "config.pbtxt"), "a")
	write(filepath.Join(e.Dir, "1", "model.onnx"), "a")
	last := e.TreeStamp()
	for _, c := range []struct {
		does   string
		do     func() error
		change bool
	}{
		{"nothing", func() error { return nil }, false},
		{"the configuration grows", func() error { write(filepath.Join(e.Dir, "config.pbtxt"), "ab"); return nil }, true},
		{"a model file grows", func() error { write(filepath.Join(e.Dir, "1", "model.onnx"), "ab"); return nil }, true},
		{"an empty version", func() error { return os.Mkdir(filepath.Join(e.Dir, "2"), 0o755) }, true},
		{"Python's cache", func() error { write(filepath.Join(e.Dir, "__pycache__", "x"), "a"); return nil }, false},
		{"a link to a version", func() error { return os.Symlink(linked, filepath.Join(e.Dir, "3")) }, true},
		{"a file behind the link", func() error { write(filepath.Join(linked, "model.onnx"), "a"); return nil }, true},
		{"a file behind the link grows", func() error { write(filepath.Join(linked, "model.onnx"), "ab"); return nil }, true},
		{"a version is removed", func() error { return os.RemoveAll(filepath.Join(e.Dir, "1")) }, true},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		now := e.TreeStamp()
		if (now != last) != c.change {
			t.Errorf("%s: got changed %v, want %v", c.does, now != last, c.change)
		}
		last = now
	}
}
