// Command criteria checks what shoal perf promises, P1 to P16 of its acceptance
// criteria, on models that sleep for known times, and prints each with its figure
// and whether it holds. The fixtures run in a process of their own. It wants a
// machine that does nothing else. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
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
	missed, err := run(ctx, *shoal, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/criteria:", err)
		os.Exit(1)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// run checks the criteria one after the other and counts those that do not hold.
func run(ctx context.Context, shoal string, only []string) (missed int, err error) {
	s, err := startServer(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer s.close()
	b := &bench{shoal: shoal, server: s}
	for _, c := range criteria() {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		begin := time.Now()
		figure, ok, err := c.check(ctx, b)
		verdict := "pass"
		switch {
		case ctx.Err() != nil:
			return missed, ctx.Err()
		case err != nil:
			verdict, figure = "ERROR", err.Error()
			missed++
		case !ok:
			verdict = "FAIL"
			missed++
		}
		fmt.Printf("%-4s %-5s %s\n           %s (%.0f s)\n", c.name, verdict, c.what, figure, time.Since(begin).Seconds())
	}
	return missed, nil
}
