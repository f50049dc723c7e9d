// Package cli is the command line: one file per subcommand. It alone touches
// the arguments, the environment, the standard streams and exit codes.
package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Version is the product's version; the build may set it.
var Version = "0.1.0"

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitMisuse = 2
)

// Main runs the command that args name and returns the process's exit code.
// Called as tritonserver it is the serve command with Triton's defaults, called as
// perf_analyzer the perf command.
func Main(args []string, stdout, stderr io.Writer) int {
	name := filepath.Base(args[0])
	root := newRoot()
	switch name {
	case "tritonserver":
		root = alone(newServe(tritonDefaults), name)
	case "perf_analyzer":
		root = alone(newPerf(), name)
	default:
		name = "shoal"
	}
	root.SetArgs(spellOut(root, args[1:]))
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	var misuse *misuseError
	if errors.As(err, &misuse) {
		fmt.Fprintf(stderr, "Run '%s --help' for the flags and what they mean.\n", misuse.command)
		return misuse.code
	}
	return exitFailed
}

// alone makes a subcommand the whole command, under another name.
func alone(cmd *cobra.Command, name string) *cobra.Command {
	_, args, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(name + " " + args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Version = Version
	cmd.SetFlagErrorFunc(flagMisused)
	checkArgs(cmd)
	return cmd
}

// spellOut completes the shortened flags of perf, which getopt would take.
func spellOut(root *cobra.Command, args []string) []string {
	if root.Name() == "perf_analyzer" {
		return completePrefixes(root.Flags(), args)
	}
	if cmd, rest, err := root.Find(args); err == nil && cmd.Name() == "perf" && len(rest) < len(args) {
		return append(slices.Clone(args[:len(args)-len(rest)]), completePrefixes(cmd.Flags(), rest)...)
	}
	return args
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shoal",
		Short: "An inference server that gathers small requests into batches",
		Long: `Shoal serves ONNX models over the KServe v2 protocol, HTTP and gRPC, from the
same model repositories and to the same clients as NVIDIA Triton.`,
		Example: `  shoal runtime install                    get ONNX Runtime, once
  shoal serve --demo                       try it without any files
  shoal serve --model-repository ./models  serve your own models
  shoal perf -m digits                     measure a model of it
  shoal top                                watch how it is doing`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("shoal {{.Version}}\n")
	root.SetFlagErrorFunc(flagMisused)
	root.AddCommand(newServe(shoalDefaults), newPerf(), newTop(), newRuntime())
	for _, c := range append(root.Commands(), root) {
		checkArgs(c)
	}
	return root
}

// checkArgs makes surplus arguments a misuse rather than a failure.
func checkArgs(c *cobra.Command) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return misused(cmd, err)
		}
		return nil
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// A misuseError is a fault in how a command was called.
type misuseError struct {
	command string
	code    int
	err     error
}

func (e *misuseError) Error() string { return e.err.Error() }
func (e *misuseError) Unwrap() error { return e.err }

func misused(cmd *cobra.Command, err error) error {
	code := exitMisuse
	if own, err := strconv.Atoi(cmd.Annotations[misuseKey]); err == nil {
		code = own
	}
	return &misuseError{command: cmd.CommandPath(), code: code, err: err}
}

// misuseKey annotates a command that has an exit code of its own for misuse.
const misuseKey = "shoal_misuse"

// An exitError ends the process with a code; what is to be said was said.
type exitError struct{ code int }

func (e *exitError) Error() string { return "exit " + strconv.Itoa(e.code) }
