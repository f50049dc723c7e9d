package perfcmd

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"shoal/internal/perf"
	"shoal/internal/perf/live"
)

// The values of --live.
const (
	liveAuto = "auto"
	liveOff  = "off"
	liveLine = "line"
	liveFull = "full"
)

// checkLive checks that --live can be shown on stderr.
func checkLive(value string, stderr io.Writer) error {
	switch value {
	case liveAuto, liveOff, liveLine:
		return nil
	case liveFull:
		if _, ok := terminal(stderr); !ok {
			return fmt.Errorf("--live=%s needs a terminal on standard error; use --live=%s", liveFull, liveLine)
		}
		return nil
	}
	return fmt.Errorf("--live is %q, want %s, %s, %s or %s", value, liveAuto, liveOff, liveLine, liveFull)
}

// terminal returns the terminal that a stream is.
func terminal(stream any) (*os.File, bool) {
	file, ok := stream.(*os.File)
	return file, ok && term.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb"
}

// liveMode turns the flag into a mode. The default is a line: one that changes on a
// terminal, one for each window elsewhere.
// perf_analyzer, whose users parse what it prints, shows nothing there.
func liveMode(value string, isTerminal, isOriginal bool) live.Mode {
	switch {
	case value == liveOff, value == liveAuto && !isTerminal && isOriginal:
		return live.Off
	case value == liveFull:
		return live.Full
	case !isTerminal:
		return live.Plain
	}
	return live.Line
}

// startLive shows the run on standard error; the caller closes the result.
// Interrupt ends the run as Ctrl-C does.
func (p *pictureFlags) startLive(ctx context.Context, interrupt func(), s *perf.Settings, cmd *cobra.Command) *live.View {
	stderr := cmd.ErrOrStderr()
	screen, is := terminal(stderr)
	o := live.Options{
		Mode: liveMode(p.live, is, cmd.Name() == "perf_analyzer"), Out: stderr, Plan: &s.Plan, Levels: s.Levels(),
		Title: fmt.Sprintf("%s at %s over %s", s.Model, s.Address.Host, s.Protocol), Interrupt: interrupt,
	}
	if is {
		o.Width = func() int {
			width, _, err := term.GetSize(screen.Fd())
			if err != nil {
				return 0
			}
			return width
		}
	}
	if keys, ok := terminal(os.Stdin); ok {
		o.In = keys
	}
	return live.Start(ctx, o)
}
