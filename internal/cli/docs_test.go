package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shoal/internal/cli/perfcmd"
)

var (
	codeSpan  = regexp.MustCompile("(?s)```[a-z ]*\n(.*?)```|`([^`]+)`")
	heredoc   = regexp.MustCompile(`(?s)<<'END'\n.*?\nEND\n`)
	shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	target    = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

// TestCommandsOfTheDocumentsExist reads every command of ours in the documents: the subcommand and its flags exist, and so do
// the targets of make. What the commands do is tested elsewhere, those of the tutorial in test/e2e/test_tutorial.py.
func TestCommandsOfTheDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../examples/*.md", "../../examples/*/*.md", "../../bench/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(page) == "CHANGELOG.md" { // has commands that are gone
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(string(text), -1) {
			for _, words := range commandsIn(m[1] + m[2]) {
				checked++
				if words[0] == "make" {
					if len(words) > 1 && !slices.Contains(targets, words[1]) {
						t.Errorf("%s: %q: the Makefile has no target %s", page, strings.Join(words, " "), words[1])
					}
				} else if err := parses(words); err != nil {
					t.Errorf("%s: %q: %v", page, strings.Join(words, " "), err)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("got %d commands in the documents, want more than 100: are they still found?", checked)
	}
}

// commandsIn returns the commands of ours in a piece of code, by word.
func commandsIn(code string) [][]string {
	code = heredoc.ReplaceAllString(strings.ReplaceAll(code, "\\\n", " "), "\n")
	var found [][]string
	for line := range strings.Lines(code) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		line, _, _ = strings.Cut(line, " #")
		if strings.HasSuffix(line, ".") { // a sentence of the help
			continue
		}
		for part := range strings.SplitSeq(strings.NewReplacer("&&", "|", ";", "|").Replace(line), "|") {
			words := shellWord.FindAllString(part, -1)
			for len(words) > 0 && strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-") { // VARIABLE=value
				words = words[1:]
			}
			if len(words) == 0 {
				continue
			}
			words[0] = filepath.Base(words[0])
			switch words[0] {
			case "shoal", "tritonserver", "perf_analyzer", "make":
				found = append(found, words)
			}
		}
	}
	return found
}

// parses reports why a command line of ours could not be read, without running it.
func parses(words []string) error {
	root := newRoot()
	switch words[0] {
	case "tritonserver":
		root = alone(newServe(tritonDefaults), words[0])
	case "perf_analyzer":
		root = alone(perfcmd.New(Version), words[0])
	}
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	var args []string
	for _, w := range words[1:] {
		if strings.HasPrefix(w, ">") || w == "&" || strings.HasPrefix(w, "2>") || strings.HasPrefix(w, "...") || w == "…" {
			break
		}
		args = append(args, strings.Trim(w, `'"`))
	}
	if len(args) > 0 && words[0] == "shoal" && !strings.HasPrefix(args[0], "-") {
		if err := unknownCommand(root, args); err != nil {
			return err
		}
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	return flagsExist(cmd, rest)
}

// flagsExist reports a flag that the command does not have; values may be left out in a text.
func flagsExist(cmd *cobra.Command, args []string) error {
	cmd.InitDefaultHelpFlag()
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		var f *pflag.Flag
		switch {
		case strings.HasPrefix(a, "--"):
			f = cmd.Flags().Lookup(name)
		case strings.HasPrefix(a, "-") && len(a) > 1:
			f = cmd.Flags().ShorthandLookup(name[:1])
		default:
			continue
		}
		if f == nil {
			return fmt.Errorf("no flag %s", a)
		}
	}
	return nil
}
