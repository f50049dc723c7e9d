package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"shoal/bench/internal/report"
	"shoal/bench/internal/watch"
)

// results is what goes into attack.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Budget   int64        `json:"budget"`
	Alone    string       `json:"alone"`
	Classes  []figure     `json:"classes"`
	Duration string       `json:"duration"`
	Settle   string       `json:"settle"`
	Together *union       `json:"together"`
}

// missed returns the floors that were missed, in words.
func (r results) missed() []string {
	var words []string
	for _, f := range r.Classes {
		words = append(words, f.missed(mostGoodLatency)...)
	}
	if r.Together != nil {
		words = append(words, r.Together.missed()...)
	}
	return words
}

// missed returns the floors that all classes together missed, in words.
func (u *union) missed() []string {
	var words []string
	if u.Failed > 0 {
		words = append(words, fmt.Sprintf("together: %d good requests failed: %s", u.Failed, strings.Join(u.Failure, "; ")))
	}
	if u.Bytes == 0 {
		words = append(words, "together: nothing was sent: this was no attack")
	}
	if float64(u.End.RSS) > mostLeft*float64(u.Start.RSS) {
		words = append(words, fmt.Sprintf("together: memory is %.1f MB afterwards and was %.1f (at most %.0f%% more)", mb(u.End.RSS), mb(u.Start.RSS), 100*(mostLeft-1)))
	}
	if u.End.Files > u.Start.Files+moreFiles {
		words = append(words, fmt.Sprintf("together: %d files are open afterwards and %d were", u.End.Files, u.Start.Files))
	}
	return words
}

// tables returns the results as tables that are Markdown and read well as text.
func (r results) tables() string {
	var b strings.Builder
	if len(r.Classes) > 0 {
		b.WriteString(table(r.Classes) + "\n")
	}
	u := r.Together
	if u == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "All together: %d connections at a time, %d made, %d closed by the server, %.0f MB sent; %d refused by the server's count, %.2f of its cores busy.\n\n",
		u.Conns, u.Made, u.Closed, mb(u.Bytes), u.Refused, u.Cores)
	cells := [][]string{{"good requests", "count", "p50 ms", "p99", "max"}}
	for _, name := range slices.Sorted(maps.Keys(u.Good)) {
		l := u.Good[name]
		cells = append(cells, []string{name, fmt.Sprint(l.Count), fmt.Sprintf("%.2f", l.P50), fmt.Sprintf("%.1f", l.P99), fmt.Sprintf("%.1f", l.Max)})
	}
	b.WriteString(report.Table(cells))
	fmt.Fprintf(&b, "\n%d good requests failed.\n\n", u.Failed)
	state := func(name string, s watch.State) []string {
		return []string{name, fmt.Sprintf("%.1f", mb(s.RSS)), fmt.Sprintf("%.1f", mb(s.Heap)), fmt.Sprint(s.Goroutines), fmt.Sprint(s.Files), fmt.Sprint(s.Threads)}
	}
	b.WriteString(report.Table([][]string{
		{"", "RSS MB", "heap MB", "goroutines", "files", "threads"}, state("fresh", u.Fresh), state("start", u.Start), {"peak", fmt.Sprintf("%.1f", mb(u.Peak)), "", "", "", ""}, state("end", u.End),
	}))
	return b.String()
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Attack\n\n" + r.Facts.Markdown())
	fmt.Fprintf(&b, "- each class %s by itself, with `--max-inflight-bytes=%d`; all together %s, the memory at the end %s later\n", r.Alone, r.Budget, r.Duration, r.Settle)
	if r.Together != nil {
		fmt.Fprintf(&b, "- server of all together: `%s`\n", r.Together.Server)
	}
	b.WriteString("\nWritten by `make attack`; bench/README.md says how to read it.\n\n" + r.tables() + "\n")
	for _, f := range r.Classes {
		fmt.Fprintf(&b, "- %s: %s\n", f.Class, f.About)
	}
	for _, words := range r.missed() {
		fmt.Fprintf(&b, "- MISSED %s\n", words)
	}
	return b.String()
}
