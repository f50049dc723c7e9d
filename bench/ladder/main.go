// Command ladder climbs the three steps of Triton's tutorial on batching (no
// batching, dynamic batching, dynamic batching with two instances) with two models
// for which batching pays on a CPU, and plots what each step brings. With --at it
// loads a server that is already there. See bench/README.md and
// docs/tutorial-batching.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	shoal, work, out string
	rounds           int
	warmup, duration time.Duration
	model, callers   string
	at, writeMLP     string
	tutorial         string
	json, reportOnly bool
}

func main() {
	var o options
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.StringVar(&o.out, "out", "bench/results", "folder for ladder.json, ladder.md and ladder.svg; empty writes none")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; figures are medians of them")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "load in one run")
	flag.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "load before it that is not counted")
	flag.StringVar(&o.model, "model", "", "only this model: mlp or credsweeper")
	flag.StringVar(&o.callers, "callers", "", "numbers of callers, separated by commas, in place of the model's own")
	flag.StringVar(&o.tutorial, "tutorial", "docs/tutorial-batching.md", "page whose figures a whole run replaces; empty replaces none")
	flag.StringVar(&o.at, "at", "", "climb nothing; load --model on the server at this HTTP address (host:port)")
	flag.StringVar(&o.writeMLP, "write-mlp", "", "climb nothing; write the MLP as this ONNX file")
	flag.BoolVar(&o.json, "json", false, "print JSON, not tables")
	flag.BoolVar(&o.reportOnly, "report-only", false, "exit 0 even when a floor is missed")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := do(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/ladder:", err)
		os.Exit(1)
	}
	if len(missed) > 0 {
		fmt.Fprintln(os.Stderr, "bench/ladder: floors missed:", strings.Join(missed, ", "))
		if !o.reportOnly {
			os.Exit(1)
		}
	}
}

// do does what the options ask for and returns the floors that were missed.
func do(ctx context.Context, o options) (missed []string, err error) {
	if o.writeMLP != "" {
		return nil, writeMLP(o.writeMLP)
	}
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	if o.at != "" {
		return nil, loadAt(ctx, o, chosen, os.Stdout)
	}
	r, err := climb(ctx, o, chosen)
	if err != nil {
		return nil, err
	}
	return r.missed(), r.publish(o)
}

// choose returns what to climb with, as the options want it.
func choose(o options) ([]ascent, error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", o.rounds)
	}
	var callers []int
	for _, word := range strings.FieldsFunc(o.callers, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--callers %s: %q is no number of callers", o.callers, word)
		}
		callers = append(callers, n)
	}
	var chosen []ascent
	var names []string
	for _, a := range ascents(o.work) {
		names = append(names, a.model.Name)
		if o.model != "" && o.model != a.model.Name {
			continue
		}
		if len(callers) > 0 {
			a.callers = callers
		}
		chosen = append(chosen, a)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("--model %s: there are %s", o.model, strings.Join(names, " and "))
	}
	return chosen, nil
}

// writeMLP writes the MLP and the folders above it.
func writeMLP(path string) error {
	b, err := peer.MLP().ONNX()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
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
	if err := report.Write(o.out, "ladder", r, r.page()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "ladder.svg"), []byte(r.plot()), 0o644); err != nil {
		return err
	}
	if whole := o.model == "" && o.callers == ""; !whole || o.tutorial == "" {
		return nil
	}
	return r.updateTutorial(o.tutorial)
}
