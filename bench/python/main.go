// Command python measures how Shoal runs Python models: what a batch costs on its
// way to a worker and back, and what a request costs and takes beside other
// servers of Python models, run by run in turn. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, python, triton, work string
	rounds, trips               int
	warmup, duration            time.Duration
	rows                        string
}

func main() {
	o := options{Command: report.NewCommand("python")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.python, "python-peers", "build/python-peers", "virtual environment with the other servers, for Shoal's workers too")
	flag.StringVar(&o.triton, "triton-venv", "build/triton-venv", "virtual environment with nvidia-pytriton")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.IntVar(&o.rounds, "rounds", 9, "rounds; figures are medians of them")
	flag.IntVar(&o.trips, "trips", 10_000, "batches of each kind in a round of the round trip")
	flag.DurationVar(&o.duration, "duration", time.Second, "load in one run")
	flag.DurationVar(&o.warmup, "warmup", 200*time.Millisecond, "load before it that is not counted")
	flag.StringVar(&o.rows, "rows", "", "only rows with one of these words, separated by commas, in their name")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench measures everything, round by round, and returns the floors that were
// missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	rows, withTrip, err := choose(strings.FieldsFunc(o.rows, func(r rune) bool { return r == ',' || r == ' ' }))
	if err != nil {
		return nil, err
	}
	if o.rounds < 1 || o.trips < 1 {
		return nil, fmt.Errorf("--rounds %d --trips %d: at least one is needed of each", o.rounds, o.trips)
	}
	if err := writeServers(serversDir(o)); err != nil {
		return nil, err
	}
	r := results{Facts: report.Gather(), Rounds: o.rounds, Duration: o.duration.String(), Trips: o.trips}
	fleet := newFleet(o)
	defer fleet.close()
	var round *trip
	if withTrip {
		if round, err = startTrip(ctx, o); err != nil {
			return nil, err
		}
		defer round.close()
	}
	if err := fleet.start(ctx, rows); err != nil {
		return nil, err
	}
	var trips []tripSample
	samples := make([][]sampleSet, len(rows))
	for n := range o.rounds {
		if withTrip {
			t, err := round.measure(o.trips)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "round %d/%d %s\n", n+1, o.rounds, t)
			trips = append(trips, t)
		}
		for i, w := range rows {
			set, err := fleet.measure(ctx, w, n)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "round %d/%d %-14s %s\n", n+1, o.rounds, w.name(), set.line(w))
			samples[i] = append(samples[i], set)
		}
	}
	if withTrip {
		r.Trip = summariseTrips(trips)
	}
	for i, w := range rows {
		r.Rows = append(r.Rows, compare(w, samples[i]))
	}
	r.Servers = fleet.commands()
	return r.missed(), o.Publish(os.Stdout, r, r.tables(), r.page())
}
