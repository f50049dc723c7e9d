// Command attack does to a server what hostile clients do: each kind by itself,
// with what it costs, and then all of them together for minutes beside good
// clients of both protocols. See bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shoal/bench/internal/attack"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, work, python string
	classes             string
	budget              int64
	alone, together     time.Duration
	settle              time.Duration
}

func main() {
	if os.Getenv(referenceEnv) != "" {
		if err := attack.ServeReference(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	o := options{Command: report.NewCommand("attack")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench/attack", "folder for models and logs")
	flag.StringVar(&o.python, "python", "python3", "Python with numpy, for the workers")
	flag.StringVar(&o.classes, "classes", "", "only classes with one of these words, separated by commas, in their name")
	flag.Int64Var(&o.budget, "budget", 64<<20, "bytes: --max-inflight-bytes of the servers that each class has by itself")
	flag.DurationVar(&o.alone, "alone", 2*time.Second, "how long each class attacks by itself; 0 leaves that out")
	flag.DurationVar(&o.together, "duration", 5*time.Minute, "how long all classes attack together; 0 leaves that out")
	flag.DurationVar(&o.settle, "settle", time.Minute, "how long after that the memory is looked at")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench runs the classes and returns the floors that were missed.
func bench(ctx context.Context, o options) ([]string, error) {
	s := stage{shoal: o.shoal, work: o.work, budget: o.budget, calm: o.alone / 4, attack: o.alone}
	region, remove, err := attack.MakeRegion()
	if err != nil {
		return nil, err
	}
	defer remove()
	s.region = region
	r := results{Facts: report.Gather(), Budget: o.budget, Alone: o.alone.String(), Duration: o.together.String(), Settle: o.settle.String()}
	if o.alone > 0 {
		if r.Classes, err = each(ctx, o, s); err != nil {
			return nil, err
		}
	}
	if o.together > 0 {
		if r.Together, err = together(ctx, o, region); err != nil {
			return nil, err
		}
	}
	return r.missed(), o.Publish(os.Stdout, r, r.tables(), r.page())
}

// each runs the chosen classes one by one, those of TLS in both of its modes.
func each(ctx context.Context, o options, s stage) ([]figure, error) {
	other, err := startReference()
	if err != nil {
		return nil, err
	}
	defer other.close()
	figures, err := o.run(ctx, s, attack.All(), other, "")
	if err != nil {
		return nil, err
	}
	for _, mode := range []string{"", " (mutual)"} {
		plain := s
		plain.budget *= 4 // each connection counts for 64 KiB of it
		secure, _, err := plain.overTLS(mode != "")
		if err != nil {
			return nil, err
		}
		more, err := o.run(ctx, secure, attack.Handshakes(), other, mode)
		if err != nil {
			return nil, err
		}
		figures = append(figures, more...)
	}
	return figures, nil
}

// floodBudget is what a server has whose costs are held against grpc-go's: the
// floods need streams, and not their refusal.
const floodBudget = 1 << 30

// run runs those of the classes that are chosen on a stage.
func (o options) run(ctx context.Context, s stage, classes []attack.Class, other *reference, suffix string) (figures []figure, err error) {
	for _, c := range classes {
		if !o.chosen(c) {
			continue
		}
		f, err := s.run(ctx, c)
		if err == nil && c.Flood != nil && !c.Flood.Unread {
			roomy := s
			roomy.budget = floodBudget
			err = roomy.cost(ctx, c.Flood, other, &f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		f.Class += suffix
		fmt.Fprintf(os.Stderr, "%-22s %s\n", f.Class, strings.Join(f.missed(mostGoodLatency), "; "))
		figures = append(figures, f)
	}
	return figures, nil
}

// cost fills in what the flood costs a server of its own and grpc-go's.
func (s stage) cost(ctx context.Context, flood *attack.Flood, other *reference, f *figure) error {
	server, err := s.start(ctx)
	if err != nil {
		return err
	}
	return errors.Join(compare(ctx, flood, server.Process, server.GRPC, other, f), server.Close())
}

func (o options) chosen(c attack.Class) bool {
	words := strings.FieldsFunc(o.classes, func(r rune) bool { return r == ',' })
	return len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(c.Name, w) })
}

func repository(o options) string { return filepath.Join(o.work, "models-together") }
