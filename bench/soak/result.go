package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/report"
	"shoal/bench/internal/watch"
)

// What the server may hold more at the end than after the warm-up: files and
// goroutines of connections that come and go, and a share of the memory.
const (
	moreFiles      = 10
	moreGoroutines = 20
	mostGrowth     = 1.5
)

// results is what goes into soak.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Server   string       `json:"server"`
	Race     bool         `json:"race"` // built with the race detector
	Duration string       `json:"duration"`
	Models   []account    `json:"models"`
	Kills    int          `json:"kills"`
	Restarts int          `json:"restarts"`
	Halves   int          `json:"cut_off"`
	Wrong    []string     `json:"wrong"`
	Failed   []string     `json:"failed"`
	Races    int          `json:"races"`
	ExitCode int          `json:"exit_code"`
	Start    watch.State  `json:"start"`
	End      watch.State  `json:"end"`
}

// missed returns what went wrong, in words.
func (r results) missed() []string {
	var words []string
	miss := func(missed bool, format string, args ...any) {
		if missed {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	miss(len(r.Wrong) > 0, "wrong answers, such as: %s", first(r.Wrong))
	miss(len(r.Failed) > 0, "requests failed that nobody cancelled or killed, such as: %s", first(r.Failed))
	miss(r.Races > 0, "%d reports of the race detector", r.Races)
	miss(r.ExitCode != 0, "exit code %d", r.ExitCode)
	for _, a := range r.Models {
		miss(a.Good == 0, "%s: no good answer", a.Model)
		miss(!a.agrees(), "%s: the server counts %d successes and %d failures; its clients %d, %d and %d that were cancelled", a.Model, a.Success, a.Failure, a.Good, a.Killed, a.Cancelled)
		miss(a.Killed > r.Kills*ask.MaxBatch, "%s: %d requests failed with %d kills, at most %d to each", a.Model, a.Killed, r.Kills, ask.MaxBatch)
	}
	miss(r.End.Files > r.Start.Files+moreFiles, "open files grew from %d to %d", r.Start.Files, r.End.Files)
	miss(r.End.Goroutines > r.Start.Goroutines+moreGoroutines, "goroutines grew from %d to %d", r.Start.Goroutines, r.End.Goroutines)
	miss(float64(r.End.Heap) > mostGrowth*float64(r.Start.Heap), "Go's heap grew from %d to %d KB", r.Start.Heap>>10, r.End.Heap>>10)
	// The race detector keeps its own memory for as long as the process lives.
	miss(!r.Race && float64(r.End.RSS) > mostGrowth*float64(r.Start.RSS), "memory grew from %d to %d MB", r.Start.RSS>>20, r.End.RSS>>20)
	return words
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// table returns the results as tables that are Markdown and read well as text.
func (r results) table() string {
	cells := [][]string{{"model", "right answers", "failed by a kill", "cancelled", "server: success", "failure", ""}}
	for _, a := range r.Models {
		verdict := "agrees"
		if !a.agrees() {
			verdict = "MISSED"
		}
		cells = append(cells, []string{a.Model, fmt.Sprint(a.Good), fmt.Sprint(a.Killed), fmt.Sprint(a.Cancelled), fmt.Sprint(a.Success), fmt.Sprint(a.Failure), verdict})
	}
	state := func(name string, s watch.State) []string {
		return []string{name, fmt.Sprint(s.RSS >> 20), fmt.Sprint(s.Heap >> 10), fmt.Sprint(s.Goroutines), fmt.Sprint(s.Files), fmt.Sprint(s.Threads)}
	}
	return report.Table(cells) + "\n" +
		fmt.Sprintf("%d workers killed, %d restarts, %d connections cut off within a request; %d wrong answers, %d unexplained failures, %d races, exit code %d.\n\n",
			r.Kills, r.Restarts, r.Halves, len(r.Wrong), len(r.Failed), r.Races, r.ExitCode) +
		report.Table([][]string{{"", "RSS MB", "heap KB", "goroutines", "files", "threads"}, state("start", r.Start), state("end", r.End)})
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Soak\n\n" + r.Facts.Markdown())
	fmt.Fprintf(&b, "- %s of load after a warm-up, a server built with the race detector\n- server: `%s`\n", r.Duration, r.Server)
	b.WriteString("\nWritten by `make soak`; bench/README.md says how to read it.\n\n" + r.table() + "\n")
	for _, words := range r.missed() {
		fmt.Fprintf(&b, "- MISSED %s\n", words)
	}
	return b.String()
}
