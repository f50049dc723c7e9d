// Command overload sends a server twice the requests it can serve and looks at
// what becomes of them: whether it goes on to serve as many as it can, says no to
// the others in time, keeps its memory, and is itself again when the load has
// gone. See bench/README.md.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, work        string
	rows               string
	rounds             int
	capacity, duration time.Duration
}

func main() {
	o := options{Command: report.NewCommand("overload")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "overload in one row")
	flag.DurationVar(&o.capacity, "capacity", 4*time.Second, "load, before and after, by which the capacity is found")
	flag.IntVar(&o.rounds, "rounds", 5, "times that each row is run; the one with the median goodput counts")
	flag.StringVar(&o.rows, "rows", "", "only rows with one of these words, separated by commas, in their name")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench runs the rows one after the other, each on a server of its own, and
// returns the floors that were missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	rows, err := choose(allRows(), strings.FieldsFunc(o.rows, func(r rune) bool { return r == ',' }))
	if err != nil {
		return nil, err
	}
	r := results{Facts: report.Gather(), Duration: o.duration.String(), Capacity: o.capacity.String()}
	for _, row := range rows {
		command, err := row.command(o.shoal, o.work)
		if err != nil {
			return nil, err
		}
		got, err := repeatOn(ctx, o, row, command)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-14s capacity %5.0f/s, offered %5.0f/s, goodput %5.0f/s; refused p99 %.2f ms\n",
			row.name, got.Capacity, got.Offered, got.Goodput, got.Refused.P99)
		r.Rows = append(r.Rows, got)
		r.Server = command.String()
	}
	return r.missed(), o.Publish(os.Stdout, r, r.table(), r.page())
}

// repeatOn runs a row several times and returns the median: a machine that grows
// faster or slower by a tenth within a minute would decide a single one.
func repeatOn(ctx context.Context, o options, row row, command peer.Command) (outcome, error) {
	var all []outcome
	for range max(o.rounds, 1) {
		got, err := runOn(ctx, o, row, command)
		if err != nil {
			return got, err
		}
		fmt.Fprintf(os.Stderr, "%-14s goodput %.0f%% of the capacity\n", row.name, 100*got.share())
		all = append(all, got)
	}
	return median(all), nil
}

// median returns the outcome with the median share of the capacity.
func median(all []outcome) outcome {
	slices.SortFunc(all, func(a, b outcome) int { return cmp.Compare(a.share(), b.share()) })
	m := all[len(all)/2]
	m.Shares = nil
	for _, o := range all {
		m.Shares = append(m.Shares, o.share())
	}
	return m
}

// runOn starts the server for a row.
func runOn(ctx context.Context, o options, row row, command peer.Command) (outcome, error) {
	server, err := peer.Start(ctx, command)
	if err != nil {
		return outcome{}, err
	}
	defer server.Close()
	return run(ctx, o, row, server)
}
