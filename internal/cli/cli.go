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
	end, err := profile()
	if err == nil {
		err = root.Execute()
		end()
	}
	if err == nil {
		return exitDone
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	text, code := fmt.Sprintf("%s: %v\n", name, err), exitFailed
	var misuse *misuseError
	if errors.As(err, &misuse) {
		text += fmt.Sprintf("Run '%s --help' for the flags and what they mean.\n", misuse.command)
		code = misuse.code
	}
	sayLast(stderr, text)
	return code
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
		Long: `Shoal serves ONNX and Python models over the KServe v2 protocol, HTTP and gRPC,
from the same model repositories and to the same clients as NVIDIA Triton.`,
		Example: `  shoal runtime install                    get ONNX Runtime, once
  shoal serve --demo                       try it without any files
  shoal serve --model-repository ./models  serve your own models
  shoal serve --model mean.py              serve one file
  shoal perf -m digits                     measure a model of it
  shoal top                                watch how it is doing`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("shoal {{.Version}}\n")
	root.SetFlagErrorFunc(flagMisused)
	root.AddCommand(newServe(shoalDefaults), newPerf(), newTop(), newRuntime())
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // a shell that is none of these is a misuse
		c.Args, c.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	checkArgs(root)
	return root
}

// An exitError ends the process with a code; what is to be said was said.
type exitError struct{ code int }

func (e *exitError) Error() string { return "exit " + strconv.Itoa(e.code) }
