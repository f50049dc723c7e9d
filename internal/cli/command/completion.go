package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shoal/internal/client"
)

// CompleteModels lets a shell complete the values of a flag by the names of models
// that a running server has.
func CompleteModels(cmd *cobra.Command, flag string, open func() (client.API, error)) {
	_ = cmd.RegisterFlagCompletionFunc(flag, ModelNames(open)) // fails only when called twice
}

// ModelNames completes the names of models that a running server has.
func ModelNames(open func() (client.API, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		api, err := open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = api.Close() }() // only names went over it
		names, _ := api.Names(ctx)         // a server that cannot be asked has none
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// PlainUsage takes the quotes out of the texts of flags, which mark the name of a value
// in the help and would be shown by shells.
func PlainUsage(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, c := range cmd.Commands() {
		PlainUsage(c)
	}
}

// completionTimeout is how long somebody at a shell waits for names.
const completionTimeout = time.Second

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
