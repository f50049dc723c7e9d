package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/charmbracelet/x/term"

	"shoal/internal/perf"
)

// withProgress puts a line that moves under the report of a run when someone
// watches; otherwise the report is all there is.
func withProgress(report *perf.Report, stderr io.Writer) perf.Observer {
	file, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(file.Fd()) {
		return report
	}
	return &progress{Report: report, out: stderr}
}

// A progress is a report with a line under it.
type progress struct {
	*perf.Report
	out io.Writer
}

const clearLine = "\r\x1b[K"

// Progress rewrites the line.
func (p *progress) Progress(now perf.Progress) {
	w := now.Window
	seconds := max(now.Elapsed.Seconds(), 0.001)
	fmt.Fprintf(p.out, clearLine+"  window %d, %.1f s: %.0f requests/s, p50 %s, p99 %s", now.Trial, seconds,
		float64(w.Requests)/seconds, short(w.Latency.Quantile(0.5)), short(w.Latency.Quantile(0.99)))
	if w.Failed > 0 {
		fmt.Fprintf(p.out, ", %d failed", w.Failed)
	}
}

// Window removes the line before something is printed.
func (p *progress) Window(trial int, w *perf.Window) {
	fmt.Fprint(p.out, clearLine)
	p.Report.Window(trial, w)
}

// End removes the line as well: a level may end within a window.
func (p *progress) End(l *perf.Level) {
	fmt.Fprint(p.out, clearLine)
	p.Report.End(l)
}

func short(d time.Duration) string { return d.Round(time.Microsecond).String() }
