package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSpareCacheIsUsedWhereTheFirstCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file") // in place of a folder: unlike a mode, it stops root as well
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good, spare := filepath.Join(dir, "good"), filepath.Join(dir, "spare")
	for _, c := range []struct{ name, cache, want string }{
		{"the first will do", good, good},
		{"there is none", "", spare},
		{"it cannot be made", filepath.Join(file, "cache"), spare},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := usableCache(c.cache, spare)
			if err != nil || got != c.want {
				t.Errorf("got %q, error %v, want %q", got, err, c.want)
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", ".probe-*")); len(left) > 0 {
		t.Errorf("got %v left behind, want nothing", left)
	}
}

func TestASpareCacheThatOthersMayWriteToIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	open, link := filepath.Join(dir, "open"), filepath.Join(dir, "link")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, spare := range []string{open, link} {
		if got, err := usableCache("", spare); err == nil || !strings.Contains(err.Error(), "this user alone") {
			t.Errorf("%s: got %q, error %v, want it refused", spare, got, err)
		}
	}
}
