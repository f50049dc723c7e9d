// Command models shows how well requests are batched on models of many costs: each
// plain, with dynamic batching and with two instances, beside the best static
// setting of the batcher, beside ONNX Runtime alone and, where one is named, beside
// a tritonserver with its ONNX Runtime backend. See bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/report"
	"shoal/internal/backend/onnx/library"
	"shoal/internal/backend/onnx/ort"
)

type options struct {
	*report.Command
	shoal, work          string
	triton, backends     string
	library              string
	wrk, ghz             string
	rounds               int
	warmup, duration     time.Duration
	slices               int
	slice                time.Duration
	precision            float64
	steal                float64
	patience             time.Duration
	quick, pin           bool
	grid                 string
	models, settings     string
	callers              string
	protocols, generator string
	only                 string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		os.Exit(serve(os.Args[2:]))
	}
	o := options{Command: report.NewCommand("models")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench/models", "folder for models and logs")
	flag.StringVar(&o.triton, "tritonserver", "", "a tritonserver to compare with; needs --backends")
	flag.StringVar(&o.backends, "backends", "", "its folder of backends, with onnxruntime/libtriton_onnxruntime.so")
	flag.StringVar(&o.library, "onnxruntime-library", "", "ONNX Runtime for Shoal and for the runs without a server; with --backends the one beside Triton's backend, else the one that Shoal finds")
	flag.StringVar(&o.wrk, "wrk", "wrk", "the HTTP load generator wrk")
	flag.StringVar(&o.ghz, "ghz", "ghz", "the gRPC load generator ghz")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; ratios are medians of them")
	flag.DurationVar(&o.duration, "duration", 3*time.Second, "load in one run")
	flag.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "load before it that is not counted")
	flag.IntVar(&o.slices, "slices", 160, "slices in which Shoal and the best static settings are loaded in turn, at most")
	flag.Float64Var(&o.precision, "precision", 0.015, "fewer of them if the ratio of all together is known so well, with 95 % confidence")
	flag.DurationVar(&o.slice, "slice", 100*time.Millisecond, "the length of a slice; eight batches of a slow model are longer")
	flag.Float64Var(&o.steal, "steal", 0.05, "repeat a round during which the host gave other machines more than this share of the cores")
	flag.DurationVar(&o.patience, "patience", 2*time.Minute, "repeat it for so long at most; then it counts as it is")
	flag.BoolVar(&o.quick, "quick", false, "3 rounds of 1s, 20 slices, the small grid and the third-party generators only, unless other flags say otherwise")
	flag.BoolVar(&o.pin, "pin", false, "keep the servers on the first half of the cores and the clients on the rest")
	flag.StringVar(&o.grid, "grid", "full", "static settings to compare with: full, small, none or a list such as 1000/8,0/0, each its delay in microseconds and its preferred rows")
	flag.StringVar(&o.models, "model", "", "only these models, separated by commas")
	flag.StringVar(&o.settings, "setting", "", "only these settings: plain, dynamic, dynamic2")
	flag.StringVar(&o.callers, "callers", "1,8,16,64", "numbers of callers")
	flag.StringVar(&o.protocols, "protocol", "http,grpc", "protocols")
	flag.StringVar(&o.generator, "generator", "ours,tool", "load generators: ours (internal/load) and tool (wrk for HTTP, ghz for gRPC)")
	flag.StringVar(&o.only, "only", "", "only cells whose name, such as \"gru dynamic2 c16 http wrk\", matches this regular expression")
	o.Main(func(ctx context.Context) ([]string, error) {
		o.applyQuick()
		return bench(ctx, o)
	})
}

// applyQuick sets what --quick stands for where no flag says otherwise.
func (o *options) applyQuick() {
	if !o.quick {
		return
	}
	set := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if !set["rounds"] {
		o.rounds = 3
	}
	if !set["duration"] {
		o.duration = time.Second
	}
	if !set["slices"] {
		o.slices = 20
	}
	if !set["grid"] {
		o.grid = "small"
	}
	if !set["generator"] {
		o.generator = tool
	}
}

// bench measures every chosen cell and returns those that missed a gate.
func bench(ctx context.Context, o options) (missed []string, err error) {
	groups, err := plan(o)
	if err != nil {
		return nil, err
	}
	if err := o.findTools(groups); err != nil {
		return nil, err
	}
	if o.library, err = o.findLibrary(); err != nil {
		return nil, err
	}
	lib, err := ort.Open(o.library, ort.Threads{})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return nil, err
	}
	r := results{
		Facts: report.Gather(), Rounds: o.rounds, Slices: o.slices, Duration: o.duration.String(), Runtime: lib.Version(), Pinned: o.pin,
	}
	for _, g := range groups {
		m, cells, failed := measureGroup(ctx, o, lib, g)
		r.add(m, cells)
		if failed != nil {
			// Hours may lie behind it: what was measured is kept.
			err = fmt.Errorf("%s, %s: %w", g.model.Name, g.setting.name, failed)
			break
		}
	}
	r.sort()
	return r.missed(), errors.Join(err, o.Print(os.Stdout, r, r.tables()), o.record(r))
}

// add judges the cells of a group, as far as they were measured.
func (r *results) add(m modelCost, cells []measured) {
	if len(cells) == 0 {
		return
	}
	r.Costs = append(r.Costs, m)
	for _, c := range cells {
		cell := judge(c, r.Pinned)
		cell.Commit, cell.Date = r.Facts.Commit, r.Facts.Date
		r.Cells = append(r.Cells, cell)
	}
}

// findTools looks for the load generators that the cells need.
func (o options) findTools(groups []group) error {
	for _, g := range groups {
		for _, c := range g.cells {
			if c.generator != tool {
				continue
			}
			if err := o.tool(c.protocol).Find(); err != nil {
				return fmt.Errorf("%w; --generator ours goes without", err)
			}
		}
	}
	return nil
}

// tool returns the third-party generator for a protocol.
func (o options) tool(protocol string) measure.Tool {
	if protocol == grpc {
		return measure.Ghz(o.ghz, "proto")
	}
	return measure.Wrk(o.wrk)
}

// findLibrary returns the ONNX Runtime that all run with: a comparison of servers
// with two versions of it would compare those.
func (o options) findLibrary() (string, error) {
	if (o.triton == "") != (o.backends == "") {
		return "", fmt.Errorf("--tritonserver %q and --backends %q: give both or neither", o.triton, o.backends)
	}
	if o.backends == "" {
		return library.Find(library.Environment(o.library, os.Getenv))
	}
	found, err := filepath.Glob(filepath.Join(o.backends, "onnxruntime", "libonnxruntime.so*"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("--backends %s: no onnxruntime/libonnxruntime.so there", o.backends)
	}
	if o.library == "" {
		return filepath.Abs(found[0])
	}
	theirs, _, err := ort.Inspect(found[0])
	if err != nil {
		return "", err
	}
	ours, _, err := ort.Inspect(o.library)
	if err != nil {
		return "", err
	}
	if ours != theirs {
		return "", fmt.Errorf("--onnxruntime-library %s: version %s, but Triton's backend has %s; both servers must have the same", o.library, ours, theirs)
	}
	return filepath.Abs(o.library)
}
