// Command cache measures what the response cache saves and costs: a hit beside a miss
// and beside a model without a cache, for an identity model, the cheapest there is. See
// bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, work      string
	rounds           int
	warmup, duration time.Duration
}

func main() {
	o := options{Command: report.NewCommand("cache")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; figures are medians of them")
	flag.DurationVar(&o.warmup, "warmup", 200*time.Millisecond, "load before each run that does not count")
	flag.DurationVar(&o.duration, "duration", time.Second, "load in one run")
	o.Main(func(ctx context.Context) ([]string, error) { return nil, bench(ctx, o) })
}

// A row is one kind of request. The same request is sent all the time: a cache with room
// answers it, one without misses every time.
type row struct {
	Name   string         `json:"name"`
	Bytes  int            `json:"bytes"` // of the input, and of the output
	Cached bool           `json:"cached"`
	Room   int            `json:"cache_bytes"`
	Sample measure.Sample `json:"sample"`
}

type results struct {
	report.Facts
	Server string `json:"server"`
	Rounds int    `json:"rounds"`
	Rows   []row  `json:"rows"`
}

// The sizes of the cache: room for every answer, and for none.
const room, noRoom = 64 << 20, 1

func bench(ctx context.Context, o options) error {
	r := results{Facts: report.Gather(), Rounds: o.rounds}
	for _, m := range []peer.Model{peer.Small, peer.Big} {
		for _, kind := range []row{{Name: "no cache", Room: room}, {Name: "miss", Cached: true, Room: noRoom}, {Name: "hit", Cached: true, Room: room}} {
			kind.Bytes = 4 * m.Answer
			r.Rows = append(r.Rows, kind)
		}
	}
	samples := make([][]measure.Sample, len(r.Rows))
	for range max(o.rounds, 1) { // each round has all rows: a machine has good and bad seconds
		for i := range r.Rows {
			s, command, err := run(ctx, o, &r.Rows[i])
			if err != nil {
				return fmt.Errorf("%s: %w", r.Rows[i].Name, err)
			}
			samples[i], r.Server = append(samples[i], s), command.String()
		}
	}
	for i := range r.Rows {
		r.Rows[i].Sample = measure.Medians(samples[i])
	}
	return o.Publish(os.Stdout, r, r.table(), r.page())
}

// run measures one row on a server of its own.
func run(ctx context.Context, o options, row *row) (measure.Sample, peer.Command, error) {
	m := peer.Small
	if row.Bytes != 4*m.Answer {
		m = peer.Big
	}
	if row.Cached {
		m = m.As(m.Name, 1, "response_cache { enable: true }\n")
	}
	command, err := peer.Shoal(o.shoal, o.work, m)
	if err != nil {
		return measure.Sample{}, command, err
	}
	command.Args = append(command.Args, fmt.Sprintf("--cache-config=local,size=%d", row.Room))
	server, err := peer.Start(ctx, command)
	if err != nil {
		return measure.Sample{}, command, err
	}
	defer server.Close()
	target, err := measure.Binary(server.HTTP, m)
	if err != nil {
		return measure.Sample{}, command, err
	}
	s, err := measure.Run(ctx, server, measure.Load{Model: m.Name, Target: target, Callers: 1, Warmup: o.warmup, Duration: o.duration})
	return s, command, err
}

func (r results) table() string {
	rows := [][]string{{"input and output", "", "CPU of the server per request", "p50"}}
	for _, row := range r.Rows {
		rows = append(rows, []string{
			fmt.Sprintf("%d bytes", row.Bytes), row.Name, fmt.Sprintf("%.1f us", row.Sample.CPU), fmt.Sprintf("%.0f us", row.Sample.P50),
		})
	}
	return report.Table(rows)
}

func (r results) page() string {
	return "# The response cache\n\nWritten by `make bench-cache`; bench/README.md says how to read it.\n\n" + r.Markdown() +
		fmt.Sprintf("\nOne caller over HTTP, medians of %d rounds. `%s`\n\n", r.Rounds, r.Server) + r.table()
}
