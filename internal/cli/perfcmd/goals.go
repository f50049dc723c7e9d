package perfcmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"shoal/internal/cli/command"
	"shoal/internal/perf"
	"shoal/internal/perf/judge"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

// goalFlags are perf's flags for goals and comparisons.
type goalFlags struct {
	slo      string
	capacity string
	compare  string
	hdr      string
}

func (f *goalFlags) add(g *command.Group) {
	g.Text(&f.slo, "slo", "", "`goals` of each level, such as 'p99<10ms,error<0.1%,throughput>500' (p50 to p99.99, mean, max; rate is requests per second); the exit code is 4 if one is missed")
	g.Text(&f.capacity, "find-capacity", "", "look for the highest rate of an open loop that meets `goals`, such as 'p99<20ms'; --request-rate-range sets the lowest and highest; exit 4 if none does")
	g.Text(&f.compare, "compare", "", "compare with the result in this `file`, or several with commas, as shoal perf diff does")
	g.Text(&f.hdr, "hdr-file", "", "write the latency spectrum to this `file` in the format of HdrHistogram's tools; with several levels each gets its own file")
}

// stats adds the flags to perf's settings.
func (b *builder) stats(s *perf.Settings) {
	f := b.flags
	s.Plan.MaxErrors = f.maxErrors.share
	s.Goals = b.goals("slo", f.slo)
	s.Capacity = b.goals("find-capacity", f.capacity)
	for _, name := range []string{"concurrency-range", "callers", "request-intervals", "binary-search", "request-count", "slo"} {
		b.wrong(f.capacity != "" && b.given(name), "--find-capacity chooses the load: remove --%s", name)
	}
}

func (b *builder) goals(flag, text string) []judge.Goal {
	if text == "" {
		return nil
	}
	goals, err := judge.ParseGoals(text)
	if err != nil {
		b.add(fmt.Errorf("--%s: %w", flag, err))
	}
	return goals
}

// allowed returns the share of requests that may fail without changing the exit
// code.
func (f *flags) allowed(s *perf.Settings, given bool) float64 {
	if given {
		return f.maxErrors.share
	}
	share, _ := judge.Allowance(s.Goals)
	return share
}

// compareWith prints how the result differs from an earlier one.
func (f *goalFlags) compareWith(out io.Writer, before judge.Side, r *result.Result) error {
	if f.compare == "" || len(r.Reported()) == 0 {
		return nil
	}
	c, err := judge.Compare(before, judge.Side{Names: []string{"this run"}, Results: []*result.Result{r}}, defaultLeast/100.)
	if err != nil {
		return fmt.Errorf("--compare: %w", err)
	}
	var text strings.Builder
	if err := report.WriteComparison(&text, c); err != nil {
		return err
	}
	fmt.Fprintf(out, "| compared with %s\n", f.compare)
	for line := range strings.Lines(text.String()) {
		fmt.Fprint(out, "| ", line)
	}
	return nil
}

// before reads the results to compare with, before the run.
func (f *goalFlags) before() (judge.Side, error) {
	if f.compare == "" {
		return judge.Side{}, nil
	}
	side, err := readSide(f.compare)
	if err != nil {
		return side, fmt.Errorf("--compare: %w", err)
	}
	return side, nil
}

// writeHDR writes a spectrum for each level.
func (f *goalFlags) writeHDR(say io.Writer, r *result.Result) error {
	var errs []error
	levels := r.Reported()
	for _, l := range levels {
		path := f.hdr
		if len(levels) > 1 {
			path = levelFile(path, l.Load)
		}
		errs = append(errs, writeFile(say, path, func(w io.Writer) error { return report.WriteHDR(w, l.Merged.Latency) }))
	}
	return errors.Join(errs...)
}

// levelFile adds the level to the name of a file, before its extension.
func levelFile(path string, l result.Load) string {
	if path == "" {
		return ""
	}
	ending := filepath.Ext(path)
	return strings.TrimSuffix(path, ending) + "." + l.Mode + "-" + strconv.FormatFloat(l.Value, 'g', 6, 64) + ending
}
