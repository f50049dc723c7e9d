package tempdir

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// at makes dir the system's temporary folder.
func at(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSweepRemovesOnlyWhatNobodyUses(t *testing.T) {
	temp := at(t)
	var used, left Dir
	defer used.Close()
	usedPath, err := used.Path()
	if err != nil {
		t.Fatal(err)
	}
	leftPath, err := left.Path()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(leftPath, "model.onnx"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = left.lock.Close() // as the kernel does for a killed process

	elsewhere := filepath.Join(temp, "elsewhere")
	link := filepath.Join(temp, prefix+"link")
	other := filepath.Join(temp, "other")
	for _, dir := range []string{elsewhere, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if n := Sweep(); n != 1 {
		t.Errorf("removed %d folders, want 1", n)
	}
	for path, want := range map[string]bool{usedPath: true, leftPath: false, elsewhere: true, link: true, other: true} {
		if got := exists(path); got != want {
			t.Errorf("%s exists: got %v, want %v", path, got, want)
		}
	}
}

func TestCloseRemovesTheFolder(t *testing.T) {
	at(t)
	var d Dir
	path, err := d.Path()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Path(); err != nil || again != path {
		t.Errorf("the second call: got %s, %v, want %s", again, err, path)
	}
	if err := d.Close(); err != nil || exists(path) {
		t.Errorf("got %v and the folder exists: %v, want it removed", err, exists(path))
	}
}

func TestAFolderIsNeverSweptBeforeItIsLocked(t *testing.T) {
	at(t)
	var sweeping sync.WaitGroup
	end := make(chan struct{})
	sweeping.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				Sweep()
			}
		}
	})
	for range 200 {
		var d Dir
		path, err := d.Path()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	close(end)
	sweeping.Wait()
}
