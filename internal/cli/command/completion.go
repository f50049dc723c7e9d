package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CompleteChoices lets a shell complete the values of flags whose help names them,
// as in `http|grpc`.
func CompleteChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		choices := strings.Split(kind, "|")
		if len(choices) < 2 {
			return
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if choices[len(choices)-1] == "path" { // a file name is accepted too
			choices, directive = choices[:len(choices)-1], cobra.ShellCompDirectiveDefault
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choices, directive)) // fails only when called twice
	})
}
