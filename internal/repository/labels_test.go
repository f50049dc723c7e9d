package repository

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/status"
)

func TestLabelsAreTheLines(t *testing.T) {
	e := Entry{Name: "m", Dir: tree(t, map[string]string{
		"plain":      "cat\ndog\n",
		"open":       "cat\ndog",
		"windows":    "cat\r\ndog\r\n",
		"gaps":       "cat\n\ndog\n\n",
		"none":       "",
		"sub/labels": "é\n",
	})}
	for file, want := range map[string][]string{
		"plain": {"cat", "dog"}, "open": {"cat", "dog"}, "windows": {"cat", "dog"},
		"gaps": {"cat", "", "dog", ""}, "none": nil, "sub/labels": {"é"},
	} {
		got, err := e.Labels(file)
		if err != nil {
			t.Errorf("Labels(%q): %v", file, err)
		} else if !cmp.Equal(got, want) {
			t.Errorf("Labels(%q): got %q, want %q", file, got, want)
		}
	}
}

func TestLabelsStayInTheModelsFolder(t *testing.T) {
	root := tree(t, map[string]string{"secret": "x", "m/labels": "cat", "m/latin": "\xe9", "m/sub/": ""})
	e := Entry{Name: "m", Dir: filepath.Join(root, "m")}
	for _, c := range []struct {
		file string
		code status.Code
		want string
	}{
		{"../secret", status.InvalidArgument, `label_filename "../secret" leaves the model's folder`},
		{"sub/../../secret", status.InvalidArgument, "leaves the model's folder"},
		{filepath.Join(root, "secret"), status.InvalidArgument, "leaves the model's folder"},
		{"", status.InvalidArgument, "leaves the model's folder"},
		{"none", status.NotFound, "none: no such file or directory"},
		{"sub", status.InvalidArgument, "not a regular file"},
		{"latin", status.InvalidArgument, "not UTF-8"},
	} {
		_, err := e.Labels(c.file)
		checkError(t, err, c.code, c.want)
	}
}

func TestLabelsOfAFileThatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "labels")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxFile+1<<20); err != nil {
		t.Fatal(err)
	}
	_, err := Entry{Name: "m", Dir: dir}.Labels("labels")
	checkError(t, err, status.InvalidArgument, "the file has 17.0 MiB, and at most 16.0 MiB are read")
}
