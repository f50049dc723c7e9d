// Package cli is the command line: one file per subcommand. Only it uses the
// arguments, the environment, the standard streams and exit codes.
package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"shoal/internal/cli/command"
	"shoal/internal/cli/perfcmd"
)

// Version is the product's version; the build may set it.
var Version = "0.1.0"

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
)

// Main runs the command that args name and returns the process's exit code.
// Called as tritonserver it is the serve command with Triton's defaults, called
// as perf_analyzer the perf command, and under the names of Multi Model Server and
// TorchServe one of them, or their archivers.
func Main(args []string, stdout, stderr io.Writer) int {
	if filepath.Base(args[0]) == entrypoint {
		args = commandOf(args)
	}
	name := filepath.Base(args[0])
	if _, ok := modelServerNames[name]; ok {
		return runModelServer(name, args[1:], stdout, stderr)
	}
	command.FitHelp(stdout)
	root := newRoot()
	switch name {
	case "tritonserver":
		root = alone(newServe(tritonDefaults), name)
	case "perf_analyzer":
		root = alone(perfcmd.New(Version), name)
	case "model-archiver", "torch-model-archiver":
		root = alone(newArchiver(name), name)
	default:
		name = "shoal"
	}
	if err := unknownCommand(root, args[1:]); err != nil {
		return report(stderr, name, err)
	}
	if len(args) > 1 && strings.HasPrefix(args[1], cobra.ShellCompRequestCmd) {
		command.PlainUsage(root)
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
	return report(stderr, name, err)
}

// entrypoint is the name that container images call the binary by. Runtimes of
// Kubernetes put the program's name into the arguments: tritonserver --model-store=...
const entrypoint = "shoal-entrypoint"

// commandOf returns the command that the arguments of the entrypoint stand for:
// one of the names that the binary has, or arguments of shoal.
func commandOf(args []string) []string {
	if len(args) > 1 && slices.Contains(commandNames, filepath.Base(args[1])) {
		return args[1:]
	}
	return append([]string{"shoal"}, args[1:]...)
}

// commandNames are the names under which the binary is a command of its own.
var commandNames = []string{"shoal", "tritonserver", "perf_analyzer", "multi-model-server", "mxnet-model-server", "model-archiver", "torchserve", "torch-model-archiver"}

// report writes the error that ends a command and returns the exit code.
func report(stderr io.Writer, name string, err error) int {
	var exit *command.ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	text, code := fmt.Sprintf("%s: %v\n", name, err), exitFailed
	var misuse *command.MisuseError
	if errors.As(err, &misuse) {
		text += fmt.Sprintf("Run '%s --help' for the flags and what they mean.\n", misuse.Command)
		code = misuse.Code
	}
	sayLast(stderr, text)
	return code
}

// unknownCommand refuses a first word that is no command before its flags are
// read, which would be unknown as well.
func unknownCommand(root *cobra.Command, args []string) error {
	if !root.HasSubCommands() || len(args) == 0 || strings.HasPrefix(args[0], "-") || root.Name() != "shoal" {
		return nil
	}
	for _, c := range root.Commands() {
		if c.Name() == args[0] || c.HasAlias(args[0]) {
			return nil
		}
	}
	if args[0] == "help" || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // cobra adds these when it runs
		return nil
	}
	return command.Misused(root, command.NoArgs(root, args))
}

// alone makes a subcommand the root command, under another name.
func alone(cmd *cobra.Command, name string) *cobra.Command {
	_, args, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(name + " " + args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if cmd.Flags().Lookup("version") == nil {
		cmd.Version = Version
	}
	cmd.SetFlagErrorFunc(command.FlagMisused)
	command.CheckArgs(cmd)
	return cmd
}

// spellOut completes the abbreviated flags that the originals accept, since they
// use getopt.
func spellOut(root *cobra.Command, args []string) []string {
	if root.Name() == "perf_analyzer" || root.Name() == "tritonserver" {
		return command.CompletePrefixes(root.Flags(), args)
	}
	if cmd, rest, err := root.Find(args); err == nil && cmd.Name() == "perf" && len(rest) < len(args) {
		return append(slices.Clone(args[:len(args)-len(rest)]), command.CompletePrefixes(cmd.Flags(), rest)...)
	}
	return args
}

// newVersion is the command that prints what --version does.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "shoal %s\n", Version)
			return err
		},
	}
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
  shoal check ./models                     list what is wrong with them
  shoal perf -m digits                     measure a model of it
  shoal top                                watch how it is doing`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          command.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.PrintVersion(root, "shoal "+Version)
	root.SetFlagErrorFunc(command.FlagMisused)
	root.AddCommand(newServe(shoalDefaults), newCheck(), perfcmd.New(Version), newTop(), newGraph(), newRuntime(), newArchive(), newVersion())
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // an unknown shell is a misuse
		c.Args, c.RunE = command.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	command.CheckArgs(root)
	return root
}
