package perfcmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
)

// TestCommandLinesOfTutorialsAreAccepted has the command lines for perf_analyzer
// that users paste, as they are written.
func TestCommandLinesOfTutorialsAreAccepted(t *testing.T) {
	for _, line := range []string{
		"perf_analyzer -m text_recognition -b 2 --shape input.1:1,32,100 --concurrency-range 2:16:2 --percentile=95",
		"perf_analyzer -m text_recognition -b 2 --shape input.1:1,32,100 --concurrency-range 2:12:2 --percentile=9",
	} {
		args := strings.Fields(line)
		f := &flags{}
		cmd := &cobra.Command{Use: args[0]}
		f.add(cmd)
		if err := cmd.ParseFlags(command.CompletePrefixes(cmd.Flags(), args[1:])); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if _, err := f.settings(cmd); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
