// Package cli is the command line: one file per subcommand. It alone touches
// the arguments, the environment, the standard streams and exit codes.
package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

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
// Called as tritonserver it is the serve command with Triton's defaults.
func Main(args []string, stdout, stderr io.Writer) int {
	name := filepath.Base(args[0])
	root := newRoot()
	if name == "tritonserver" {
		root = newServe(tritonDefaults)
		root.Use = "tritonserver"
		root.SilenceErrors, root.SilenceUsage = true, true
	} else {
		name = "shoal"
	}
	root.SetArgs(args[1:])
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	var misuse *misuseError
	if errors.As(err, &misuse) {
		fmt.Fprintf(stderr, "Run '%s --help' for the flags and what they mean.\n", misuse.command)
		return exitMisuse
	}
	return exitFailed
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
  shoal top                                watch how it is doing`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("shoal {{.Version}}\n")
	root.SetFlagErrorFunc(misused)
	root.AddCommand(newServe(shoalDefaults), newTop(), newRuntime())
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
	err     error
}

func (e *misuseError) Error() string { return e.err.Error() }
func (e *misuseError) Unwrap() error { return e.err }

func misused(cmd *cobra.Command, err error) error {
	return &misuseError{command: cmd.CommandPath(), err: err}
}
