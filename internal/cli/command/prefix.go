package command

import (
	"strings"

	"github.com/spf13/pflag"
)

// CompletePrefixes expands abbreviated long flags, as GNU getopt does: any
// prefix that only one flag has.
func CompletePrefixes(set *pflag.FlagSet, args []string) []string {
	list := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(list, args[i:]...)
		}
		name, ok := strings.CutPrefix(arg, "--")
		value := ""
		if at := strings.IndexByte(name, '='); at >= 0 {
			name, value = name[:at], name[at:]
		}
		if ok && name != "" && set.Lookup(name) == nil && name != "help" {
			if full := onlyFlag(set, name); full != "" {
				arg = "--" + full + value
			}
		}
		list = append(list, arg)
	}
	return list
}

// onlyFlag returns the one flag that begins with prefix, empty when there are
// none or several.
func onlyFlag(set *pflag.FlagSet, prefix string) string {
	found, n := "", 0
	set.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, prefix) {
			found = f.Name
			n++
		}
	})
	if n != 1 {
		return ""
	}
	return found
}
