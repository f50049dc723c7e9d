package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shoal/internal/spelling"
)

// ExitMisuse is the exit code of a command that was called wrongly.
const ExitMisuse = 2

// An ExitError ends the process with a code; the message was already printed.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return "exit " + strconv.Itoa(e.Code) }

// A MisuseError is an error in how a command was called.
type MisuseError struct {
	Command string
	Code    int
	err     error
}

func (e *MisuseError) Error() string { return e.err.Error() }
func (e *MisuseError) Unwrap() error { return e.err }

// MisuseKey annotates a command that has its own exit code for misuse.
const MisuseKey = "shoal_misuse"

// Misused makes err a misuse of the command.
func Misused(cmd *cobra.Command, err error) error {
	code := ExitMisuse
	if own, err := strconv.Atoi(cmd.Annotations[MisuseKey]); err == nil {
		code = own
	}
	return &MisuseError{Command: cmd.CommandPath(), Code: code, err: err}
}

func flagNames(set *pflag.FlagSet) []string {
	var names []string
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// CheckArgs makes surplus arguments a misuse rather than a failure.
func CheckArgs(c *cobra.Command) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Misused(cmd, err)
		}
		return nil
	}
	for _, sub := range c.Commands() {
		CheckArgs(sub)
	}
}

// NoArgs refuses arguments. An argument to a command with subcommands is
// reported as an unknown subcommand.
func NoArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return fmt.Errorf("%q is not expected: %s takes only flags", args[0], cmd.CommandPath())
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	if near := nearest(args[0], names); near != "" {
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], cmd.CommandPath(), near)
	}
	return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
}

// nearest returns the name that was probably meant: one that contains the text,
// or one that differs by a few letters; "" when there is none.
func nearest(text string, names []string) string {
	best := spelling.Nearest(text, names)
	for _, name := range names {
		if best == "" && len(text) > 2 && strings.Contains(name, text) {
			best = name
		}
	}
	return best
}
