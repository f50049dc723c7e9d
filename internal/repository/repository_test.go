package repository

import (
	"os"
	"path/filepath"
	"slices"
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
	entries, ambiguous, err := Set{Roots: []string{a, b, a + "/"}}.Scan()
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Name: "apple", Dir: filepath.Join(a, "apple")},
		{Name: "linked", Dir: filepath.Join(a, "linked")},
		{Name: "mango", Dir: filepath.Join(b, "mango")},
		{Name: "zebra", Dir: filepath.Join(a, "zebra")},
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
			_, _, err := Set{Roots: []string{c.root}}.Scan()
			checkError(t, err, status.InvalidArgument, "--model-repository ")
			checkError(t, err, status.InvalidArgument, c.want)
		})
	}
}

func TestScanOfAnEmptyRepository(t *testing.T) {
	entries, ambiguous, err := Set{Roots: []string{t.TempDir()}}.Scan()
	if len(entries) != 0 || len(ambiguous) != 0 || err != nil {
		t.Errorf("got %v, %v, %v, want nothing", entries, ambiguous, err)
	}
}

func TestNamespacesTellModelsOfOneNameApart(t *testing.T) {
	a, b := tree(t, map[string]string{"both/": "", "one/": ""}), tree(t, map[string]string{"both/": ""})
	set := Set{Roots: []string{a, b}, Namespaces: true}
	entries, ambiguous, err := set.Scan()
	if err != nil || len(ambiguous) != 0 {
		t.Fatalf("got %v, %v, want no error and nothing ambiguous", ambiguous, err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID())
		if found, err := set.Find(e.ID()); found != e || err != nil {
			t.Errorf("%s: got %v, %v, want %v", e.ID(), found, err, e)
		}
		if set.Name(e.ID()) != e.Name || set.Namespace(e.ID()) != e.Namespace || filepath.Join(e.Namespace, e.Name) != e.Dir {
			t.Errorf("%s: got %q in %q, want %v", e.ID(), set.Name(e.ID()), set.Namespace(e.ID()), e)
		}
	}
	want := []string{a + "::both", a + "::one", b + "::both"}
	slices.Sort(want)
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := set.Find("one"); err != nil {
		t.Errorf("the only one of its name: %v", err)
	}
	for _, c := range []struct {
		id   string
		want status.Code
	}{
		{"both", status.AlreadyExists},
		{b + "::one", status.NotFound},
		{b + "::../" + filepath.Base(a) + "/one", status.InvalidArgument},
		{"/elsewhere::one", status.InvalidArgument},
	} {
		if _, err := set.Find(c.id); status.CodeOf(err) != c.want {
			t.Errorf("%s: got %v, want %v", c.id, err, c.want)
		}
	}
}
