package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagMisused rewrites an error about a flag: the library's errors name the Go
// functions that parse it.
func FlagMisused(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &unknown):
		if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd.Flags())); near != "" {
			err = fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	case errors.As(err, &invalid):
		err = fmt.Errorf("%s is %q: %s", flagName(invalid.GetFlag()), invalid.GetValue(), wantedValue(invalid))
	case errors.As(err, &missing):
		err = fmt.Errorf("%s needs a value", flagName(missing.GetFlag()))
	}
	return Misused(cmd, err)
}

// flagName returns a flag as users write it, the short form if there is one.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + " (--" + f.Name + ")"
	}
	return "--" + f.Name
}

// wantedValue returns what a flag accepts, for an error about an invalid value.
func wantedValue(e *pflag.InvalidValueError) string {
	var number *strconv.NumError
	if !errors.As(e, &number) && !errors.Is(e.Unwrap(), strconv.ErrSyntax) && !errors.Is(e.Unwrap(), strconv.ErrRange) {
		return e.Unwrap().Error()
	}
	kind := e.GetFlag().Value.Type()
	switch {
	case errors.Is(e, strconv.ErrRange):
		return "the number is too large"
	case strings.HasPrefix(kind, "uint"):
		return "want a whole number from 0 up"
	case strings.HasPrefix(kind, "int"), kind == "count":
		return "want a whole number"
	case strings.HasPrefix(kind, "float"):
		return "want a number"
	case kind == "bool":
		return "want true or false"
	}
	return e.Unwrap().Error()
}
