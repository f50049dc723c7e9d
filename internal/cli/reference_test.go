package cli

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
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
	var help bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{command, "--help"})
	root.SetOut(&help)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	checkPage(t, command, "# shoal "+command+"\n\nWhat `shoal "+command+" --help` prints; `go test ./internal/cli -update` rewrites it.\n\n```\n"+help.String()+"```\n")
}

// TestFlagsOfTritonAreFresh compares docs/flags.md with the flags as they are.
func TestFlagsOfTritonAreFresh(t *testing.T) { checkPage(t, "flags", tritonReference()) }

// checkPage compares a page of docs with what it should be.
func checkPage(t *testing.T, name, got string) {
	t.Helper()
	path := "../../docs/" + name + ".md"
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
		t.Errorf("docs/%s.md is stale; go test ./internal/cli -update mends it (-file +flags):\n%s", name, diff)
	}
}

func TestEveryFlagOfTritonIsAccountedFor(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range tritonFlags {
		for _, name := range g.names {
			if seen[name] {
				t.Errorf("--%s is listed twice", name)
			}
			seen[name] = true
			cmd := newServe(tritonDefaults)
			cmd.InitDefaultHelpFlag()
			f := cmd.Flags().Lookup(name)
			if f == nil {
				t.Errorf("--%s is unknown: implement it, or say in addWithoutEffect why not", name)
				continue
			}
			value := "1"
			if f.Value.Type() == "bool" {
				value = "true"
			}
			err := cmd.ParseFlags([]string{"--" + name + "=" + value})
			unused := withoutEffect(cmd.Flags())
			switch v := f.Value.(type) {
			case *command.Refused:
				if err == nil || !strings.Contains(err.Error(), v.Reason) {
					t.Errorf("--%s: got %v, want it refused: %s", name, err, v.Reason)
				}
			case *command.Ignored:
				if err != nil || len(unused) != 1 || unused[0] != (unusedFlag{"--" + name, v.Reason}) {
					t.Errorf("--%s: got %v and %v, want it accepted and said to be without effect", name, err, unused)
				}
			default:
				if err != nil || len(unused) > 0 {
					t.Errorf("--%s=%s: got %v and %v, want it accepted", name, value, err, unused)
				}
			}
		}
	}
}

// TestCommandLinesOfTutorialsAreAccepted has the command lines for tritonserver
// that users paste, as they are written.
func TestCommandLinesOfTutorialsAreAccepted(t *testing.T) {
	for _, line := range []string{
		"tritonserver --model-repository=/models",
		"tritonserver --model-store=/models --model-control-mode=explicit --load-model=text_recognition",
		"tritonserver --model-repo /models --strict-model-config false --log-verbose 1 --http-thread-count=4",
		"tritonserver --model-repository=/models --allow-sagemaker=false --model-namespacing=off --backend-config=python,shm-default-byte-size=1048576",
	} {
		args := strings.Fields(line)
		f := &serveFlags{}
		cmd := &cobra.Command{Use: args[0]}
		f.add(cmd, tritonDefaults)
		if err := cmd.ParseFlags(spellOut(cmd, args[1:])); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if err := f.check(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestHelpFitsATerminal: flags are wrapped to the terminal's width; other text is written for 80 columns.
func TestHelpFitsATerminal(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if n := utf8.RuneCountInString(line); n > 80 && !strings.HasPrefix(c.CommandPath(), "shoal completion") {
				t.Errorf("help of %q has a line of %d columns, want at most 80: %s", c.CommandPath(), n, line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}
