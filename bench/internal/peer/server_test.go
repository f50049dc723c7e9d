package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServerThatEndsEarlyShowsItsLog(t *testing.T) {
	_, err := Start(t.Context(), Command{
		Name: "broken",
		Args: []string{"sh", "-c", "echo no such model >&2; exit 3"},
		Log:  filepath.Join(t.TempDir(), "broken.log"),
	})
	if err == nil || !strings.Contains(err.Error(), "no such model") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want the exit status and what it said", err)
	}
}

func TestServerThatEndsEarlyIsTriedAgain(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	_, err := Start(t.Context(), Command{
		Name: "broken",
		Args: []string{"sh", "-c", "echo x >> " + count},
		Log:  filepath.Join(t.TempDir(), "broken.log"),
	})
	if tries, _ := os.ReadFile(count); err == nil || string(tries) != "x\nx\nx\n" {
		t.Errorf("got %v after %q, want an error after three starts", err, tries)
	}
}

func TestCommandIsShownWithoutTheMachinesPaths(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "/home/anna")
	t.Setenv("PATH", "/usr/bin:/bin")
	c := Command{
		Args: []string{"build/x", "serve"},
		Env:  []string{"LIB=/home/anna/python/lib", "PATH=" + wd + "/build/venv/bin:" + os.Getenv("PATH")},
	}
	if got, want := c.String(), "LIB=$HOME/python/lib PATH=build/venv/bin:$PATH build/x serve"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
