// Command batcher measures the dynamic batcher alone, without sockets and with a
// model that takes no time: the CPU that a request's way through it costs, and how
// late a queue delay ends. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	rounds       int
	requests     int
	waits        int
	delay, pause time.Duration
}

func main() {
	o := options{Command: report.NewCommand("batcher")}
	flag.IntVar(&o.rounds, "rounds", 25, "rounds; figures of the cost are medians of them")
	flag.IntVar(&o.requests, "requests", 200_000, "requests in one round at each number of callers")
	flag.IntVar(&o.waits, "waits", 2000, "queue delays to wait out, idle and under load")
	flag.DurationVar(&o.delay, "delay", 100*time.Microsecond, "the queue delay")
	flag.DurationVar(&o.pause, "pause", time.Millisecond, "idle time before each of them")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench measures everything and returns the floors that were missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	if o.rounds < 1 || o.requests < 1 || o.waits < 1 {
		return nil, fmt.Errorf("--rounds %d, --requests %d, --waits %d: at least one of each is needed", o.rounds, o.requests, o.waits)
	}
	r := results{Facts: report.Gather(), Rounds: o.rounds, Requests: o.requests, Waits: o.waits, DelayUS: micros(o.delay)}
	if r.Costs, err = measureCosts(ctx, o); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		name    string
		callers int
		floor   float64
	}{{"idle process", 0, latenessFloor}, {"under load", loadCallers, 0}} {
		got, err := measureLateness(ctx, o, l.callers)
		if err != nil {
			return nil, err
		}
		got.Name, got.Floor = l.name, l.floor
		r.Lateness = append(r.Lateness, got)
	}
	return r.missed(), o.Publish(os.Stdout, r, r.tables(), r.page())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
