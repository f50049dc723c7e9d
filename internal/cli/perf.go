package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"shoal/internal/perf"
)

// The exit codes of perf, which are perf_analyzer's but for the last.
const (
	perfUnstable    = 2
	perfNoAnswers   = 3
	perfFailed      = 99
	perfInterrupted = 130
)

// perfGC lets some more garbage grow than usual before it is collected: the
// generator's memory is small and the machine's time is the server's. A request
// leaves about a hundred bytes, so that more would save nothing.
const perfGC = 200

func newPerf() *cobra.Command {
	f := &perfFlags{}
	cmd := &cobra.Command{
		Use:   "perf -m MODEL [flags]",
		Short: "Measure a model: throughput, latency and where the time goes",
		Long: `Perf sends requests to a running server and reports throughput, latency and the
server's own account of the same time. It takes perf_analyzer's flags and prints
its report; called perf_analyzer, the binary is this command.

There are two kinds of load. A closed loop keeps a number of requests under way
(--concurrency-range): the answer to "how much can it do", but a server that
stalls is asked less, so its worst moments hardly show. An open loop sends at a
rate whatever the server does (--request-rate-range): the answer to "how long do
users wait". Its latency counts from when a request was due.

Each level is measured in windows until the last three agree within
--stability-percentage. Inputs are random unless --input-data names others;
shapes, types and the batch limit come from the server.

Every figure has an interval of 95 % (-v, --json). A first window whose beginning
is unlike its rest is warm-up and left out. Where the client rather than the server
is the bottleneck a warning says so.

Differences from perf_analyzer, besides lines that begin with "|":
  a level that is not stable   ends its range          is shown, marked; the range goes on, exit 2
  a failed request             ends the run            is counted by cause; --max-error-rate ends it
  latency of an open loop      counts from the send    from when it was due; --latency-clock=send
  an open loop                 has 4 blocking workers  has up to --max-outstanding under way
  random inputs                are any bytes           fit the type; --random-style=bytes
  JSON data                    wants 1.0 for a float   takes 1 as well, and errors name the place
  --request-count              counts an idle tail     ends with the last answer
  -r 1 and -r 2                never are stable        report what was measured, marked
  poisson gaps                 are always the same     follow from --seed
  metrics                      are the GPU's           client and server CPU under -v as well
  Ctrl-C                       exits 0                 exits 130, after the report

--html writes a page with everything in pictures, --plot a single picture, and
--live says how the run is shown while it goes.

Exit codes: 0 done; 2 a level did not become stable; 3 a window had no answers; 4 a
goal of --slo was missed; 99 anything else that went wrong, failed requests
included; 130 interrupted, after the report of what was measured.

shoal perf diff compares two results that --json wrote.`,
		Example: `  shoal perf -m digits                                    one caller
  shoal perf -m digits --concurrency-range 1:16:5         what more callers bring
  shoal perf -m digits --request-rate-range 500 --percentile 99
                                                          what users wait at 500 a second
  shoal perf -m digits --concurrency-range 1:64:1 --binary-search -l 20
                                                          most callers within 20 ms
  shoal perf -m digits --concurrency-range 1:8 --html report.html --live full
                                                          charts while it runs and after
  shoal perf -m digits -i grpc -u host:8001 -f out.csv --json out.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.record != "" {
				return f.recordTrace(cmd)
			}
			s, err := f.settings(cmd)
			if err == nil {
				err = errors.Join(s.Check(), f.pictures.check(cmd.ErrOrStderr()))
			}
			if err != nil {
				return misused(cmd, err)
			}
			return f.run(cmd, s)
		},
		Annotations: map[string]string{misuseKey: fmt.Sprint(perfFailed)},
	}
	f.add(cmd)
	completeChoices(cmd)
	cmd.SetUsageFunc(groupedUsage)
	cmd.Version = Version
	cmd.SetVersionTemplate("Perf Analyzer Version {{.Version}} (commit " + commit() + ")\n") // perf_analyzer's form
	diff := newPerfDiff()
	diff.SetUsageFunc(groupedUsage)
	cmd.AddCommand(diff)
	return cmd
}

// run measures and reports. Its error is an *exitError: what is to be said was
// said.
func (f *perfFlags) run(cmd *cobra.Command, settings *perf.Settings) error {
	debug.SetGCPercent(perfGC)
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
			_ = session.Close() // only questions went over it
		}
		return interrupted(stderr, false)
	}
	if err != nil {
		return fail(stderr, err)
	}
	defer func() { _ = session.Close() }() // only questions go over it
	if d := session.Data(); d.Read {
		fmt.Fprintf(out, " Successfully read data for %d stream/streams", len(d.Streams))
		if len(d.Streams) == 1 {
			fmt.Fprintf(out, " with %d step/steps", len(d.Streams[0]))
		}
		fmt.Fprintln(out, ".")
	}
	settings.Plan.Async = session.Async()
	perf.WriteBanner(out, settings, session.Decoupled())
	view := f.pictures.startLive(ctx, stop, settings, stderr)
	defer view.Close()
	report := session.Report(view.Hold(out), view.Hold(stderr), f.verbose > 0)
	result, err := session.Run(ctx, view.Observe(report))
	view.Close()
	if err == nil || len(result.Reported()) > 0 || result.Capacity != nil {
		report.Summary(result)
	}
	writeErr := errors.Join(f.write(cmd, session, result), f.compareWith(out, before, result))
	if writeErr != nil {
		return fail(stderr, writeErr)
	}
	return f.verdict(stderr, result, err, f.allowed(settings, cmd.Flags().Changed("max-error-rate")))
}

// fail prints an error as perf_analyzer does and makes it the exit code.
func fail(stderr io.Writer, err error) error {
	fmt.Fprintf(stderr, "error: %v\n\n", err)
	return &exitError{perfFailed}
}

// interrupted says what a run came to that the user has ended.
func interrupted(stderr io.Writer, reported bool) error {
	if reported {
		fmt.Fprintln(stderr, "The run was interrupted; the report is of what was measured until then.")
	} else {
		fmt.Fprintln(stderr, "The run was interrupted before anything was measured.")
	}
	return &exitError{perfInterrupted}
}

// verdict prints what is wrong with a run and returns the exit code for it.
func (f *perfFlags) verdict(stderr io.Writer, r *perf.Result, err error, allowed float64) error {
	failed, total := failures(r)
	switch {
	case errors.Is(err, perf.ErrNoAnswers):
		fmt.Fprintln(stderr, "No valid requests recorded within time interval. Please use a larger time window.") // word for word perf_analyzer's: tools look for it
		return &exitError{perfNoAnswers}
	case errors.Is(err, perf.ErrNoCapacity):
		fmt.Fprintf(stderr, "error: %v.\n", err)
		return &exitError{perfMissed}
	case err != nil:
		return fail(stderr, err)
	case r.Cut != "":
		return interrupted(stderr, len(r.Reported()) > 0 || r.Capacity != nil)
	case float64(failed) > allowed*float64(total):
		fmt.Fprintf(stderr, "error: %d of %d requests failed; --max-error-rate says how many may.\n", failed, total)
		return &exitError{perfFailed}
	case !r.GoalsMet():
		fmt.Fprint(stderr, "error: not every goal of --slo was reached.\n")
		return &exitError{perfMissed}
	case anyUnstable(r) && !f.allowUnstable && r.Capacity == nil:
		fmt.Fprint(stderr, "Failed to obtain stable measurement.\n\n")
		return &exitError{perfUnstable}
	}
	return nil
}

// anyUnstable says whether a level that is reported did not become stable.
func anyUnstable(r *perf.Result) bool {
	return slices.ContainsFunc(r.Reported(), func(l *perf.Level) bool { return !l.Stable })
}

// failures counts over all windows of a run.
func failures(r *perf.Result) (failed, total int64) {
	for i := range r.Levels {
		for _, w := range r.Levels[i].Windows {
			failed += w.Failed
			total += w.Failed + w.Requests
		}
	}
	return failed, total
}

// write writes the files that were asked for.
func (f *perfFlags) write(cmd *cobra.Command, session *perf.Session, r *perf.Result) error {
	csv := func(w io.Writer) error { return perf.WriteCSV(w, r, f.verboseCSV) }
	export := func(w io.Writer) error { return session.WriteExport(w, Version) }
	result := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	if f.json == "-" {
		if err := result(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	return errors.Join(
		writeFile(f.csv, csv),
		writeFile(f.export, export),
		writeFile(noDash(f.json), result),
		f.writeHDR(r),
		f.pictures.write(r))
}

func noDash(path string) string {
	if path == "-" {
		return ""
	}
	return path
}

// writeFile writes a file, unless it has no name.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// commit returns the state of the sources that the binary was built from.
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
