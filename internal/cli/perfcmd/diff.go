package perfcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

// exitMissed is the exit code of a run that did not reach its goals, or is slower.
const exitMissed = 4

// defaultLeast is the smallest difference that counts, in percent.
const defaultLeast = 3

func newDiff() *cobra.Command {
	var asJSON, failSlower bool
	var least float64
	cmd := &cobra.Command{
		Use:   "diff BEFORE.json AFTER.json",
		Short: "Compare two results of perf --json",
		Long: `Diff compares what two runs of perf wrote with --json, level by level: the ratio
of throughput and of each latency with an interval of 99 %, and a verdict:
faster, slower, or no difference seen. A closed loop is judged by its
throughput, an open loop, whose throughput is the schedule's, by its mean
latency.

A difference counts when its interval leaves out 1 and it is not below
--min-effect. The intervals of one run know how much it moved from moment to
moment; how much two runs of one build differ only several runs can tell. Give
them as one argument with commas, best measured in turns:

  shoal perf diff old1.json,old2.json,old3.json new1.json,new2.json,new3.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(least >= 0 && least < 100) {
				return command.Misused(cmd, fmt.Errorf("--min-effect is %v, want 0 or more and less than 100", least))
			}
			before, err := readSide(args[0])
			after, err2 := readSide(args[1])
			if err := errors.Join(err, err2); err != nil {
				return fail(cmd.ErrOrStderr(), err)
			}
			c, err := judge.Compare(before, after, least/100)
			if err != nil {
				return fail(cmd.ErrOrStderr(), err)
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(c)
			} else {
				err = report.WriteComparison(cmd.OutOrStdout(), c)
			}
			if err == nil && failSlower && c.Verdict == judge.Slower {
				return &command.ExitError{Code: exitMissed}
			}
			return err
		},
		Annotations: map[string]string{command.MisuseKey: fmt.Sprint(exitFailed)},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the comparison as JSON")
	cmd.Flags().BoolVar(&failSlower, "fail-if-slower", false, fmt.Sprintf("exit %d when the verdict is slower", exitMissed))
	cmd.Flags().Float64Var(&least, "min-effect", defaultLeast, "`percent` of difference that counts at least")
	return cmd
}

// readSide reads results whose files are named with commas between them.
func readSide(names string) (judge.Side, error) {
	var side judge.Side
	for name := range strings.SplitSeq(names, ",") {
		data, err := os.ReadFile(name)
		if err != nil {
			return side, err
		}
		r, err := result.Parse(data)
		if err != nil {
			return side, fmt.Errorf("%s: %w", name, err)
		}
		side.Names, side.Results = append(side.Names, name), append(side.Results, r)
	}
	return side, nil
}
