// Command ladder climbs the three steps of Triton's tutorial on batching (no
// batching, dynamic batching, dynamic batching with two instances) with two models
// for which batching pays on a CPU, and plots what each step brings. With --at it
// loads a server that is already there. See bench/README.md and
// docs/tutorial-batching.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, work      string
	rounds           int
	warmup, duration time.Duration
	model, callers   string
	at, writeMLP     string
	tutorial         string
}

func main() {
	o := options{Command: report.NewCommand("ladder")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench", "folder for models and logs")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; figures are medians of them")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "load in one run")
	flag.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "load before it that is not counted")
	flag.StringVar(&o.model, "model", "", "only this model: mlp or credsweeper")
	flag.StringVar(&o.callers, "callers", "", "numbers of callers, separated by commas, in place of the model's own")
	flag.StringVar(&o.tutorial, "tutorial", "docs/tutorial-batching.md", "page whose figures a whole run replaces; empty replaces none")
	flag.StringVar(&o.at, "at", "", "climb nothing; load --model on the server at this HTTP address (host:port)")
	flag.StringVar(&o.writeMLP, "write-mlp", "", "climb nothing; write the MLP as this ONNX file")
	o.Main(func(ctx context.Context) ([]string, error) { return do(ctx, o) })
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
	if err := o.Publish(os.Stdout, r, r.tables(), r.page()); err != nil || o.Out == "" {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.Out, "ladder.svg"), []byte(r.plot()), 0o644); err != nil {
		return err
	}
	if whole := o.model == "" && o.callers == ""; !whole || o.tutorial == "" {
		return nil
	}
	return r.updateTutorial(o.tutorial)
}
