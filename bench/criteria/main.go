// Command criteria checks what shoal perf promises, P1 to P16 of its acceptance
// criteria, on models that sleep for known times, and prints each with its figure
// and whether it holds. The fixtures run in a process of their own. It wants a
// machine that does nothing else. See bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"shoal/bench/internal/report"
	"shoal/internal/perf/live"
)

// A criterion is one promise.
type criterion struct {
	name, what string
	check      func(ctx context.Context, b *bench) (figure string, ok bool, err error)
}

func main() {
	shoal := flag.String("shoal", "build/shoal", "Shoal's binary")
	only := flag.String("only", "", "only these, separated by commas: P3,P16")
	serving := flag.Bool("serve", false, "serve the fixtures; the command starts itself so")
	memory := flag.Duration("memory-time", 30*time.Second, "how long P14 watches the client's memory; the criterion says 10m")
	out := flag.String("out", "bench/results", "folder for criteria.json and criteria.md, which keep the rows of criteria that do not run; empty writes none")
	watching := flag.String("watch", "", "measure noop with this view, on and off; the command starts itself so")
	at := flag.String("at", "", "with -watch: where the fixtures are")
	slower := flag.Float64("slower", 1, "with -serve: what the fixtures' times are multiplied by")
	flag.Parse()
	if *serving {
		if err := serve(*slower); err != nil {
			fmt.Fprintln(os.Stderr, "bench/criteria:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *watching != "" {
		if err := watchSelf(ctx, *at, live.Mode(*watching)); err != nil {
			fmt.Fprintln(os.Stderr, "bench/criteria:", err)
			os.Exit(1)
		}
		return
	}
	b := &bench{shoal: *shoal, memoryTime: *memory}
	rows, missed, err := run(ctx, b, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }))
	if *out != "" && len(rows) > 0 {
		err = errors.Join(err, keep(*out, rows))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/criteria:", err)
		os.Exit(1)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// run checks the criteria one after the other and counts those that do not hold.
func run(ctx context.Context, b *bench, only []string) (rows []row, missed int, err error) {
	if b.server, err = startServer(ctx, 1); err != nil {
		return nil, 0, err
	}
	defer b.server.close()
	for _, c := range criteria() {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		begin, facts := time.Now(), report.Gather()
		figure, ok, err := c.check(ctx, b)
		verdict := "pass"
		switch {
		case ctx.Err() != nil:
			return rows, missed, ctx.Err()
		case err != nil:
			verdict, figure = "ERROR", err.Error()
			missed++
		case !ok:
			verdict = "FAIL"
			missed++
		}
		r := row{c.name, c.what, verdict, figure, time.Since(begin).Seconds(), facts}
		fmt.Printf("%-4s %-5s %s\n           %s (%.0f s)\n", r.Name, r.Verdict, r.What, r.Figure, r.Seconds)
		rows = append(rows, r)
	}
	return rows, missed, nil
}
