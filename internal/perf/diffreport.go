package perf

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// doubts says what makes a comparison doubtful.
func doubts(before, after Side) []string {
	a, b := before.Results[0], after.Results[0]
	var list []string
	note := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	note(a.Target.Model != b.Target.Model, "the models differ: %s and %s", a.Target.Model, b.Target.Model)
	note(a.Target.Protocol != b.Target.Protocol, "the protocols differ: %s and %s", a.Target.Protocol, b.Target.Protocol)
	note(a.Plan.BatchSize != b.Plan.BatchSize, "the batch sizes differ: %d and %d", a.Plan.BatchSize, b.Plan.BatchSize)
	note(a.Plan.LatencyClock != b.Plan.LatencyClock, "the latencies begin at different moments: %q and %q", a.Plan.LatencyClock, b.Plan.LatencyClock)
	note(a.Host != b.Host, "the machines that made the load differ: %s (%d CPUs) and %s (%d CPUs)", a.Host.CPU, a.Host.CPUs, b.Host.CPU, b.Host.CPUs)
	for _, s := range []Side{before, after} {
		for i, r := range s.Results {
			for _, l := range r.Reported() {
				note(!l.Stable && l.Reason != "", "%s: %s was not stable (%s)", s.Names[i], loadName(l.Load), l.Reason)
			}
		}
	}
	note(len(before.Results) == 1 && len(after.Results) == 1,
		"with one run a side, what differs between two runs of the same build is not seen; several files a side, a1.json,a2.json, show it")
	return list
}

func missingNote(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{"measured on the first side alone: " + strings.Join(names, ", ")}
}

func loadName(l Load) string { return strings.ToLower(summaryName(l)) + " " + number(l.Value) }

func loadNames(results []*Result) string {
	var names []string
	for _, l := range loads(results) {
		names = append(names, loadName(l))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Write prints the comparison as a table for each level.
func (c *Comparison) Write(out io.Writer) error {
	for i := range c.Levels {
		l := &c.Levels[i]
		fmt.Fprintf(out, "%s: %s\n", heading(l.Load), l.Verdict)
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "\tbefore\tafter\tratio\t95% interval\t ")
		for _, f := range l.Figures {
			interval := "-"
			if f.Ratio.High > 0 {
				interval = fmt.Sprintf("%.3f to %.3f", f.Ratio.Low, f.Ratio.High)
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%.3f\t%s\t  %s\n", f.Name, figureText(f.Name, f.Before), figureText(f.Name, f.After), f.Ratio.Value, interval, f.Verdict)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	for _, n := range c.Notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	_, err := fmt.Fprintf(out, "verdict: %s (%s)\n", c.Verdict, c.Overall.text())
	return err
}

// text says how much faster or slower.
func (r Ratio) text() string {
	if r.High == 0 {
		return fmt.Sprintf("%.3f times as fast", r.Value)
	}
	return fmt.Sprintf("%.3f times as fast, 95%% interval %.3f to %.3f", r.Value, r.Low, r.High)
}

func figureText(name string, v float64) string {
	if name == FigureThroughput {
		return number(v) + "/s"
	}
	return time.Duration(v).Round(time.Microsecond).String()
}
