package result

import (
	"time"

	"shoal/internal/load"
)

// A Progress is the state of a run, ten times a second.
type Progress struct {
	Load     Load
	Trial    int             // the window now measured, from 1
	Elapsed  time.Duration   // of the window
	Window   *Window         // so far; not to be kept
	Tick     Tick            // the last tenth of a second
	Latency  *load.Histogram // of the last tenth of a second; not to be kept
	InFlight int             // requests under way
}

// SpreadOf returns how far apart the windows that count are.
func (p *Plan) SpreadOf(windows []Window) Spread {
	var throughput, latency []float64
	for _, w := range LastWindows(windows) {
		throughput = append(throughput, w.Throughput())
		latency = append(latency, float64(p.Judged(&w)))
	}
	return Spread{Throughput: spread(throughput), Latency: spread(latency)}
}

// Counts reports whether the i-th window of a level counts.
func (l *Level) Counts(i int) bool { return i >= len(l.Windows)-len(LastWindows(l.Windows)) }

// An Observer follows a run. Its methods are called one at a time; they should
// return soon.
type Observer interface {
	// Begin is called before a level is measured.
	Begin(l Load)
	// Progress is called ten times a second.
	Progress(p Progress)
	// Window is called when a window of a level has ended.
	Window(trial int, w *Window)
	// End is called when a level has ended.
	End(l *Level)
}
