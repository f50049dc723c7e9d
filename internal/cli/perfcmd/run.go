package perfcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"shoal/internal/cli/command"
	"shoal/internal/perf"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

// The exit codes of perf: perf_analyzer's, and one of our own.
const (
	exitUnstable    = 2
	exitNoAnswers   = 3
	exitFailed      = 99
	exitInterrupted = 130
)

// gcPercent lets more garbage accumulate than usual: the generator's memory is
// small, and the CPU is for the server. A request leaves about a hundred bytes,
// so a higher value would save nothing.
const gcPercent = 200

// New returns the perf command of this version of the product.
func New(version string) *cobra.Command {
	f := &flags{product: version}
	cmd := &cobra.Command{
		Use:   "perf -m MODEL [flags]",
		Short: "Measure a model: throughput, latency and where the time goes",
		Long: `Perf sends requests to a running server and reports throughput, latency and the
server's own statistics of the same time. It has perf_analyzer's flags and
prints its report; a link named perf_analyzer runs this command.

There are two kinds of load. A closed loop keeps a number of requests in flight
(--concurrency-range). It answers "how much can the server do", but a server
that stalls gets fewer requests, so its worst moments hardly show. An open loop
sends at a rate, whatever the server does (--request-rate-range). It answers
"how long do users wait". Its latency counts from when a request was due.

Each level is measured in windows until the last three agree within
--stability-percentage. Inputs are random unless --input-data names others;
shapes, types and the batch limit come from the server.

Every figure has a 95 % interval (-v, --json). A first window whose beginning
differs from the rest is warm-up and left out. A warning says when the client is
the bottleneck rather than the server.

Differences from perf_analyzer, besides lines that begin with "|":
                        perf_analyzer         shoal perf
  an unstable level     ends its range        is marked; the range goes on
  a failed request      ends the run          ends it by --max-error-rate
  open loop: latency    from the send         from when it was due
  open loop: in flight  4 threads that block  up to --max-outstanding
  random inputs         any bytes             fit the type; --random-style=bytes
  JSON data             1.0 for a float       1 too; errors name the place
  --request-count       counts an idle tail   ends with the last answer
  -r 1 and -r 2         are never stable      report the result, marked
  poisson gaps          are always the same   depend on --seed
  metrics               the GPU's             with -v also the CPUs'
  Ctrl-C                exits 0               exits 130, after the report

--html writes a page with all charts, --plot a single picture, and
--live sets how the run is shown while it goes.

Exit codes: 0 done; 2 a level did not become stable; 3 a window had no answers;
4 a goal of --slo was missed; 99 any other error, including failed requests; 130
interrupted, after the report.

shoal perf diff compares two results of --json.`,
		Example: `  shoal perf -m digits                             one caller
  shoal perf -m digits --concurrency-range 1:16:5  more callers
  shoal perf -m digits --request-rate-range 500 --percentile 99
                                                   latency at 500 requests/s
  shoal perf -m digits --concurrency-range 1:64:1 --binary-search -l 20
                                                   most callers within 20 ms
  shoal perf -m digits --concurrency-range 1:8 --html report.html --live full
                                                   charts, live and after it
  shoal perf -m digits -i grpc -u host:8001 -f out.csv --json out.json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.record != "" {
				return f.recordTrace(cmd)
			}
			s, err := f.settings(cmd)
			if err == nil {
				err = errors.Join(s.Check(), f.pictures.check(cmd.ErrOrStderr()))
			}
			if err != nil {
				return command.Misused(cmd, err)
			}
			return f.run(cmd, s)
		},
		Annotations: map[string]string{command.MisuseKey: fmt.Sprint(exitFailed)},
	}
	f.add(cmd)
	command.CompleteChoices(cmd)
	command.CompleteModels(cmd, "model-name", f.api)
	cmd.SetUsageFunc(command.GroupedUsage)
	command.PrintVersion(cmd, "Perf Analyzer Version "+version+" (commit "+commit()+")") // perf_analyzer's form
	diff := newDiff()
	diff.SetUsageFunc(command.GroupedUsage)
	cmd.AddCommand(diff)
	return cmd
}

// run measures and reports. Its error is an *command.ExitError: the message was
// already printed.
func (f *flags) run(cmd *cobra.Command, settings *perf.Settings) error {
	debug.SetGCPercent(gcPercent)
	// The first Ctrl-C ends the run early; a second one ends the process.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if f.json == "-" {
		out = stderr
	}
	if err := f.checkFiles(); err != nil {
		return fail(stderr, err)
	}
	before, err := f.before()
	if err != nil {
		return fail(stderr, err)
	}
	session, err := perf.Open(ctx, *settings)
	if ctx.Err() != nil {
		if err == nil {
			_ = session.Close() // only metadata went over it
		}
		return interrupted(stderr, false)
	}
	if err != nil {
		return fail(stderr, err)
	}
	defer func() { _ = session.Close() }()      // only metadata goes over it
	for _, note := range session.Data().Notes { // before an hour's run, not after it
		fmt.Fprintf(stderr, "warning: %s\n", note)
	}
	if d := session.Data(); d.Read {
		fmt.Fprintf(out, " Successfully read data for %d stream/streams", len(d.Streams))
		if len(d.Streams) == 1 {
			fmt.Fprintf(out, " with %d step/steps", len(d.Streams[0]))
		}
		fmt.Fprintln(out, ".")
	}
	(&report.Banner{
		Plan: session.Plan(), Service: settings.Service, Mode: settings.Mode, Distribution: settings.Distribution, Decoupled: session.Decoupled(),
	}).Write(out)
	view := f.pictures.startLive(ctx, stop, settings, cmd)
	defer view.Close()
	text := &report.Report{
		Out: view.Hold(out), Err: view.Hold(stderr), Verbose: f.verbose > 0,
		Plan: session.Plan(), Target: session.Target(), Host: perf.ThisHost(), Sequences: session.Sequenced(),
	}
	r, err := session.Run(ctx, view.Observe(text))
	view.Close()
	if err == nil || len(r.Reported()) > 0 || r.Capacity != nil {
		text.Summary(r)
	}
	writeErr := errors.Join(f.write(cmd, session, r), f.compareWith(out, before, r))
	if writeErr != nil {
		return fail(stderr, writeErr)
	}
	return f.verdict(stderr, r, err, f.allowed(settings, cmd.Flags().Changed("max-error-rate")))
}

// fail prints an error as perf_analyzer does and makes it the exit code.
func fail(stderr io.Writer, err error) error {
	fmt.Fprintf(stderr, "error: %v\n\n", err)
	return &command.ExitError{Code: exitFailed}
}

// interrupted prints the outcome of a run that the user has ended.
func interrupted(stderr io.Writer, reported bool) error {
	if reported {
		fmt.Fprintln(stderr, "The run was interrupted; the report is of what was measured until then.")
	} else {
		fmt.Fprintln(stderr, "The run was interrupted before anything was measured.")
	}
	return &command.ExitError{Code: exitInterrupted}
}

// verdict prints what is wrong with a run and returns its exit code.
func (f *flags) verdict(stderr io.Writer, r *result.Result, err error, allowed float64) error {
	failed, total := failures(r)
	switch {
	case errors.Is(err, perf.ErrNoAnswers):
		fmt.Fprintln(stderr, "No valid requests recorded within time interval. Please use a larger time window.") // word for word perf_analyzer's: tools look for it
		return &command.ExitError{Code: exitNoAnswers}
	case errors.Is(err, perf.ErrNoCapacity):
		fmt.Fprintf(stderr, "error: %v.\n", err)
		return &command.ExitError{Code: exitMissed}
	case err != nil:
		return fail(stderr, err)
	case r.Cut != "":
		return interrupted(stderr, len(r.Reported()) > 0 || r.Capacity != nil)
	case float64(failed) > allowed*float64(total):
		fmt.Fprintf(stderr, "error: %d of %d requests failed; --max-error-rate says how many may.\n", failed, total)
		return &command.ExitError{Code: exitFailed}
	case !r.GoalsMet():
		fmt.Fprint(stderr, "error: not every goal of --slo was reached.\n")
		return &command.ExitError{Code: exitMissed}
	case anyUnstable(r) && !f.allowUnstable && r.Capacity == nil:
		fmt.Fprint(stderr, "Failed to obtain stable measurement.\n\n")
		return &command.ExitError{Code: exitUnstable}
	}
	return nil
}

// anyUnstable reports whether a reported level did not become stable.
func anyUnstable(r *result.Result) bool {
	return slices.ContainsFunc(r.Reported(), func(l *result.Level) bool { return !l.Stable })
}

// failures counts over all windows of a run.
func failures(r *result.Result) (failed, total int64) {
	for i := range r.Levels {
		for _, w := range r.Levels[i].Windows {
			failed += w.Failed
			total += w.Failed + w.Requests
		}
	}
	return failed, total
}

// write writes the files that were asked for.
func (f *flags) write(cmd *cobra.Command, session *perf.Session, r *result.Result) error {
	say := cmd.ErrOrStderr()
	csv := func(w io.Writer) error { return report.WriteCSV(w, r, f.verboseCSV) }
	export := func(w io.Writer) error { return report.WriteExport(w, session.Exported(), f.product) }
	asJSON := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	if f.json == "-" {
		if err := asJSON(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	var parts []error
	if f.csv != "" {
		folder, name := filepath.Split(f.csv)
		for _, p := range report.Parts(r) {
			parts = append(parts, writeFile(say, fmt.Sprintf("%s%s_v%s.%s", folder, p.Model, p.Version, name), func(w io.Writer) error { return report.WritePartCSV(w, r, p.Model) }))
		}
	}
	return errors.Join(
		writeFile(say, f.csv, csv),
		errors.Join(parts...),
		writeFile(say, f.export, export),
		writeFile(say, noDash(f.json), asJSON),
		f.writeHDR(say, r),
		f.pictures.write(say, r))
}

func noDash(path string) string {
	if path == "-" {
		return ""
	}
	return path
}

// writeFile writes a file, unless it has no name, and says so.
func writeFile(say io.Writer, path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = errors.Join(write(file), file.Close())
	if err == nil {
		fmt.Fprintf(say, "wrote %s\n", path)
	}
	return err
}

// commit returns the commit that the binary was built from.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
