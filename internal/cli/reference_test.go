package cli

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the reference")

// TestReferenceIsFresh compares docs/serve.md and docs/perf.md with the flags as
// they are.
func TestReferenceIsFresh(t *testing.T) {
	for _, command := range []string{"serve", "perf"} {
		checkReference(t, command)
	}
}

func checkReference(t *testing.T, command string) {
	t.Helper()
	path := "../../docs/" + command + ".md"
	var help bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{command, "--help"})
	root.SetOut(&help)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	got := "# shoal " + command + "\n\nWhat `shoal " + command + " --help` prints; `go test ./internal/cli -update` rewrites it.\n\n```\n" + help.String() + "```\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/%s.md is stale; go test ./internal/cli -update mends it (-file +flags):\n%s", command, diff)
	}
}
