// Command batcher measures the dynamic batcher alone, without sockets and with a
// model that takes no time: the CPU that a request's way through it costs, and how
// late a queue delay ends. See bench/README.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"shoal/bench/internal/report"
)

type options struct {
	out              string
	rounds           int
	requests         int
	waits            int
	delay, pause     time.Duration
	json, reportOnly bool
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "bench/results", "folder for batcher.json and batcher.md; empty writes none")
	flag.IntVar(&o.rounds, "rounds", 9, "rounds; figures of the cost are medians of them")
	flag.IntVar(&o.requests, "requests", 200_000, "requests in one round at each number of callers")
	flag.IntVar(&o.waits, "waits", 2000, "queue delays to wait out, idle and under load")
	flag.DurationVar(&o.delay, "delay", 100*time.Microsecond, "the queue delay")
	flag.DurationVar(&o.pause, "pause", time.Millisecond, "idle time before each of them")
	flag.BoolVar(&o.json, "json", false, "print JSON, not a table")
	flag.BoolVar(&o.reportOnly, "report-only", false, "exit 0 even when a floor is missed")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := bench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/batcher:", err)
		os.Exit(1)
	}
	if len(missed) > 0 {
		fmt.Fprintln(os.Stderr, "bench/batcher: floors missed:", strings.Join(missed, ", "))
		if !o.reportOnly {
			os.Exit(1)
		}
	}
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
	return r.missed(), r.publish(o)
}

// publish prints the results and writes them to files.
func (r results) publish(o options) error {
	if o.json {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	} else {
		fmt.Print(r.tables())
	}
	if o.out == "" {
		return nil
	}
	return report.Write(o.out, "batcher", r, r.page())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
