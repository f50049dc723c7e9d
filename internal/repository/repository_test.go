package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/status"
)

// tree makes a folder with the given files; names that end in a slash are
// folders. It returns the folder's path.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir != path {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// checkError compares an error's code and looks for text in its message.
func checkError(t *testing.T, err error, code status.Code, text string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("got no error, want %v with %q", code, text)
	case status.CodeOf(err) != code:
		t.Errorf("code of %q: got %v, want %v", err, status.CodeOf(err), code)
	case !strings.Contains(status.Public(err), text):
		t.Errorf("got error %q, want one with %q", status.Public(err), text)
	}
}

func TestScanFindsModelsByName(t *testing.T) {
	a := tree(t, map[string]string{"zebra/1/": "", "apple/config.pbtxt": "", ".git/1/": "", "readme.md": "", "both/1/": ""})
	b := tree(t, map[string]string{"mango/1/": "", "both/1/": ""})
	if err := os.Symlink(filepath.Join(b, "mango"), filepath.Join(a, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b, "nowhere"), filepath.Join(a, "dangling")); err != nil {
		t.Fatal(err)
	}
	entries, ambiguous, err := Scan([]string{a, b, a + "/"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{"apple", filepath.Join(a, "apple")},
		{"linked", filepath.Join(a, "linked")},
		{"mango", filepath.Join(b, "mango")},
		{"zebra", filepath.Join(a, "zebra")},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"both"}, ambiguous); diff != "" {
		t.Errorf("ambiguous (-want +got):\n%s", diff)
	}
}

func TestScanRefusesWhatIsNoRepository(t *testing.T) {
	root := tree(t, map[string]string{"file": ""})
	for _, c := range []struct{ name, root, want string }{
		{"a folder that is not there", filepath.Join(root, "none"), `none": no such file or directory`},
		{"a file", filepath.Join(root, "file"), `file": not a directory`},
		{"an object store", "s3://bucket/models", `"s3://bucket/models": object stores are not supported; copy the models into a local folder`},
		{"another object store", "gs://bucket", "object stores are not supported"},
		{"a third object store", "as://account/container", "object stores are not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Scan([]string{c.root})
			checkError(t, err, status.InvalidArgument, "--model-repository ")
			checkError(t, err, status.InvalidArgument, c.want)
		})
	}
}

func TestScanOfAnEmptyRepository(t *testing.T) {
	entries, ambiguous, err := Scan([]string{t.TempDir()})
	if len(entries) != 0 || len(ambiguous) != 0 || err != nil {
		t.Errorf("got %v, %v, %v, want nothing", entries, ambiguous, err)
	}
}
