package report

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

// WriteComparison prints a comparison as a table for each level.
func WriteComparison(out io.Writer, c *judge.Comparison) error {
	for i := range c.Levels {
		l := &c.Levels[i]
		fmt.Fprintf(out, "%s: %s\n", heading(l.Load), l.Verdict)
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "\tbefore\tafter\tratio\t99% interval\t ")
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
	_, err := fmt.Fprintf(out, "verdict: %s (%s)\n", c.Verdict, ratioText(c.Overall))
	return err
}

// ratioText says how much faster or slower.
func ratioText(r judge.Ratio) string {
	if r.High == 0 {
		return fmt.Sprintf("%.3f times as fast", r.Value)
	}
	return fmt.Sprintf("%.3f times as fast, 99%% interval %.3f to %.3f", r.Value, r.Low, r.High)
}

func figureText(name string, v float64) string {
	if name == result.FigureThroughput {
		return result.Number(v) + "/s"
	}
	return time.Duration(v).Round(time.Microsecond).String()
}
