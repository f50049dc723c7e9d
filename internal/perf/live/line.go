package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"shoal/internal/perf/result"
)

// sparkWidth is how many tenths of a second the line shows.
const sparkWidth = 10

// A piece of the line; when there is no room, the one with the highest rank is
// left out first.
type piece struct {
	text string
	rank int
}

// line returns the run in one line of at most width columns; 0 means any width.
func (s *state) line(width int) string { return fit(s.pieces(), width) }

// fit joins the pieces that fit; those of the highest rank are left out first.
func fit(pieces []piece, width int) string {
	for {
		text := joined(pieces)
		if width <= 0 || ansi.StringWidth(text) <= width {
			return text
		}
		worst := 0
		for i, p := range pieces {
			if p.rank > pieces[worst].rank {
				worst = i
			}
		}
		if pieces[worst].rank == 0 {
			return ansi.Truncate(text, width, "")
		}
		pieces = append(pieces[:worst], pieces[worst+1:]...)
	}
}

func joined(pieces []piece) string {
	var list []string
	for _, p := range pieces {
		if p.text != "" {
			list = append(list, p.text)
		}
	}
	return strings.Join(list, "  ")
}

func (s *state) pieces() []piece {
	level, run := s.left()
	levelRank := 2
	if run > 0 {
		levelRank = 7 // the time left for the run says more
	}
	return []piece{
		{loadName(s.load), 0},
		{s.windowName(), 4},
		{spark(s.rates(sparkWidth)), 5},
		{fmt.Sprintf("%s/s", count(s.rate)), 0},
		{fmt.Sprintf("p50 %s p99 %s", span(s.p50), span(s.p99)), 1},
		{fmt.Sprintf("in-flight %d", s.inFlight), 9},
		{s.batchName(), 8},
		{s.splitName(), 10},
		{s.spreadName(), 6},
		{s.failedName(), 0},
		{leftName(level), levelRank},
		{s.levelName(run), 3},
	}
}

// loadName is short: c=8 or 500/s.
func loadName(l result.Load) string {
	if l.Open() {
		return fmt.Sprintf("rate=%g", l.Value)
	}
	return fmt.Sprintf("c=%g", l.Value)
}

// windowName returns the number of the window and how many there will be at
// least.
func (s *state) windowName() string {
	if s.plan.Mode == result.RequestCount {
		return fmt.Sprintf("request %d/%d", s.requests, s.plan.RequestCount)
	}
	wanted := min(windowsWanted, s.plan.MaxTrials)
	if s.trial > wanted {
		return fmt.Sprintf("window %d (most %d)", s.trial, s.plan.MaxTrials)
	}
	return fmt.Sprintf("window %d/%d+", max(1, s.trial), wanted)
}

// rates returns the throughput of the last n columns of this level.
func (s *state) rates(n int) []float64 {
	var list []float64
	for i := len(s.columns) - 1; i >= 0 && len(list) < n; i-- {
		list = append(list, s.columns[i].rate)
		if s.columns[i].first {
			break
		}
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

func (s *state) batchName() string {
	if s.server == nil || s.server.Executions == 0 {
		return ""
	}
	return fmt.Sprintf("batch %.3g", s.server.MeanBatch())
}

// splitName shows how the server's time is split between queue and model.
func (s *state) splitName() string {
	if s.server == nil {
		return ""
	}
	queue, infer := s.server.Queue.Mean(), s.server.Infer.Mean()
	total := queue + infer + s.server.Input.Mean() + s.server.Output.Mean()
	if total == 0 {
		return ""
	}
	const width = 6
	bar := func(d time.Duration) string { return strings.Repeat("█", int(0.5+width*float64(d)/float64(total))) }
	return fmt.Sprintf("queue▕%s▏infer▕%s▏", bar(queue), bar(infer))
}

func (s *state) spreadName() string {
	v, ok := s.spread()
	if !ok || s.plan.Mode == result.RequestCount {
		return ""
	}
	sign := "≤"
	if v > s.plan.Stability {
		sign = ">"
	}
	return fmt.Sprintf("spread %.1f%%%s%.3g%%", 100*min(v, 99), sign, 100*s.plan.Stability)
}

func (s *state) failedName() string {
	if s.failed == 0 {
		return "err 0"
	}
	return fmt.Sprintf("ERR %d", s.failed)
}

func leftName(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "~" + clock(d) + " left"
}

func (s *state) levelName(run time.Duration) string {
	switch {
	case s.levels == 1:
		return ""
	case s.levels == 0:
		return fmt.Sprintf("(level %d)", s.level)
	case run <= 0 || s.level >= s.levels:
		return fmt.Sprintf("(level %d of %d)", s.level, s.levels)
	}
	return fmt.Sprintf("(level %d of %d, ~%s)", s.level, s.levels, clock(run))
}

// clock formats a remaining time roughly.
func clock(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	}
	return d.Round(time.Second).String()
}

// span writes a latency with three digits.
func span(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

// count formats a number of things per second.
func count(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.0f", v)
}
