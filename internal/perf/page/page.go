package page

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"shoal/internal/perf/chart"
	"shoal/internal/perf/result"
)

//go:embed page.html
var layout string

// A content is what a page shows. Text is plain, markup is HTML, SVG, CSS or a URL
// that contains no user input but what was escaped.
type content struct {
	Title    string
	Lead     string
	Style    markup
	Cut      string
	Warnings []string
	Facts    []fact
	Header   []fact
	Command  string
	Sections []section
	Table    table
	Goals    *table
	Errors   *table
	CSV      markup
	JSON     markup
	JSONNote string
	File     string // the name of downloads, without the extension
}

// A fact is a name and a value.
type fact struct{ Name, Value string }

// A section is some figures under a heading.
type section struct {
	Heading, Text string
	Small         bool // many small figures side by side
	Figures       []figure
}

// A figure is a drawn chart.
type figure struct {
	ID, Title string
	Hint      string
	Keys      []chart.Key
	SVG       markup
}

// Write writes a self-contained HTML page about a run. It needs no network and
// follows the reader's light or dark scheme.
func Write(w io.Writer, r *result.Result) error {
	v := newRun(r)
	c := content{
		Title: "Performance of " + r.Target.Model, Lead: v.lead(),
		Style: markup(chart.CSS(":root")),
		Cut:   r.Cut, Warnings: v.warnings(), Facts: v.facts(), Header: v.header(),
		Command:  strings.Join(quoted(r.Command), " "),
		Sections: v.sections(), Table: v.table(), Goals: v.goals(), Errors: v.errors(),
		File: fileName(r),
	}
	var err error
	if c.CSV, err = embedCSV(r); err != nil {
		return err
	}
	if c.JSON, c.JSONNote, err = embedJSON(r); err != nil {
		return err
	}
	return c.write(w)
}

// quoted quotes arguments for a shell.
func quoted(args []string) []string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?#~`!{}[]") {
			list[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return list
}

func fileName(r *result.Result) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, r.Target.Model)
	return "perf-" + name + "-" + r.Started.UTC().Format("20060102-150405")
}

// sections are the figures in the order of a reader's questions: how much, how
// long, why, and whether to trust it.
func (r *run) sections() []section {
	if len(r.levels) == 0 {
		return nil
	}
	several := ""
	if len(r.levels) > maxSmall {
		several = fmt.Sprintf(" %d of %d levels are shown.", maxSmall, len(r.levels))
	}
	list := []section{
		{Heading: "What it can do", Figures: figures(
			hinted{"curve", r.curve(), r.curveHint()},
			hinted{"breakdown", r.breakdown(), "The mean request, by the server's own account. A growing queue means that the model is the limit."},
		)},
		{Heading: "How long requests take", Figures: figures(
			hinted{"spectrum", r.spectrum(), "Read it as: this share of the requests took no longer than that."},
			hinted{"latency-time", r.latencyOverTime(), "Each point is a tenth of a second, or the worst of several where the run was long."},
		)},
		{Heading: "Distribution of latency", Text: "All levels have the same axis of latency." + several, Small: true, Figures: small("histogram", r.histograms())},
		{Heading: "Batches that the server formed", Text: "From the server's statistics of the windows that count." + several, Small: true, Figures: small("batch", r.batches())},
		{Heading: "Whether to believe it", Figures: figures(
			hinted{"throughput-time", r.throughputOverTime(), "A level that is still rising was not warm yet; gaps are stalls."},
			hinted{"windows", r.windows(), "Filled points are the windows that count. They should lie close together."},
		)},
	}
	if len(r.levels) == 1 {
		list[2], list[3] = r.alone(list[2], list[3]), section{}
	}
	kept := list[:0]
	for _, s := range list {
		if len(s.Figures) > 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

func (r *run) curveHint() string {
	if len(r.levels) == 1 {
		return "One level was measured; a range, such as --concurrency-range 1:16, shows what more load brings."
	}
	return "Each point is a level, with its 95 % interval. Up to the knee more load brings throughput; behind it mostly waiting."
}

// alone puts the distributions of a single level side by side.
func (r *run) alone(latency, batches section) section {
	s := section{Heading: "Distributions", Figures: latency.Figures}
	s.Figures[0].Title = latency.Heading
	if len(batches.Figures) > 0 {
		f := batches.Figures[0]
		f.Title = batches.Heading
		s.Figures = append(s.Figures, f)
	}
	return s
}

// A hinted chart comes with a sentence on how to read it.
type hinted struct {
	id    string
	chart *chart.Chart
	hint  string
}

func figures(list ...hinted) []figure {
	var out []figure
	for _, h := range list {
		if h.chart == nil {
			continue
		}
		out = append(out, draw(h.id, h.chart, h.hint))
	}
	return out
}

func small(id string, charts []*chart.Chart) []figure {
	var out []figure
	for i, c := range charts {
		out = append(out, draw(fmt.Sprintf("%s-%d", id, i+1), c, ""))
	}
	return out
}

func draw(id string, c *chart.Chart, hint string) figure {
	svg := markup(c.Draw().SVG(id)) // generated by us, with its texts escaped
	return figure{ID: id, Title: c.Title, Hint: hint, Keys: c.Keys, SVG: svg}
}

// Plot returns a picture of a run: throughput, latency, and how the latency is
// distributed.
func Plot(r *result.Result) *chart.Drawing {
	v := newRun(r)
	title := "Performance of " + r.Target.Model
	if len(v.levels) == 0 {
		return chart.Sheet(title, "Nothing was measured.", 1)
	}
	spread := v.histograms()
	last := spread[len(spread)-1]
	if v.knee != nil {
		for i, l := range v.few(maxSmall) {
			if l == v.knee {
				last = spread[i]
			}
		}
	}
	last.Title = "Distribution of latency, " + last.Title
	last.Width, last.Height = wide, figureHigh
	charts := []*chart.Chart{v.curve(), last}
	if b := v.breakdown(); b != nil {
		charts = append(charts, b)
	}
	charts = append(charts, v.spectrum())
	return chart.Sheet(title, v.lead()+" "+v.Started.UTC().Format(time.DateTime)+" UTC, "+r.Tool+".", 2, charts...)
}
