package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
)

func wanted() options {
	return options{work: "work", rounds: 1, slices: 1, grid: "small", callers: "1,8,16,64", protocols: "http,grpc", generator: "ours,tool"}
}

func TestPlanHasEveryCellOnce(t *testing.T) {
	groups, err := plan(wanted())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, g := range groups {
		if (g.setting.batching == "") != (len(g.statics) == 0) {
			t.Errorf("%s %s: got %d static settings, want some exactly where batches are made", g.model.Name, g.setting.name, len(g.statics))
		}
		for _, c := range g.cells {
			if seen[c.name()] {
				t.Errorf("got %q twice, want it once", c.name())
			}
			seen[c.name()] = true
		}
	}
	if want := 11 * 3 * 4 * 2 * 2; len(seen) != want {
		t.Errorf("got %d cells, want %d: models, settings, callers, protocols, generators", len(seen), want)
	}
	for _, name := range []string{"gru dynamic2 c16 http wrk", "add_sub plain c1 grpc ghz", "orientation dynamic c64 grpc ours"} {
		if !seen[name] {
			t.Errorf("got no cell %q, want it", name)
		}
	}
}

func TestPlanKeepsWhatTheFlagsName(t *testing.T) {
	o := wanted()
	o.models, o.settings, o.callers, o.protocols, o.only = "gru,lstm", "dynamic2", "16", "http", "wrk$"
	groups, err := plan(o)
	if err != nil || len(groups) != 2 || len(groups[0].cells) != 1 || groups[1].cells[0].name() != "lstm dynamic2 c16 http wrk" {
		t.Errorf("got %+v, %v, want one cell of the GRU and one of the LSTM", groups, err)
	}
}

func TestPlanNamesTheFlagThatIsWrong(t *testing.T) {
	tests := []struct {
		want   string
		change func(*options)
	}{
		{"--rounds 0", func(o *options) { o.rounds = 0 }},
		{"--slices 0", func(o *options) { o.slices = 0 }},
		{`--model "resnet": want some of gru`, func(o *options) { o.models = "resnet" }},
		{`--setting "fast": want some of plain, dynamic, dynamic2`, func(o *options) { o.settings = "fast" }},
		{`--callers "0"`, func(o *options) { o.callers = "0" }},
		{`--protocol "smtp"`, func(o *options) { o.protocols = "smtp" }},
		{`--generator "ab"`, func(o *options) { o.generator = "ab" }},
		{`--grid "huge"`, func(o *options) { o.grid = "huge" }},
		{`--grid "1000/8,-1/0"`, func(o *options) { o.grid = "1000/8,-1/0" }},
		{"--only: ", func(o *options) { o.only = "(" }},
		{`--only "nothing"`, func(o *options) { o.only = "nothing" }},
	}
	for _, tt := range tests {
		o := wanted()
		tt.change(&o)
		if _, err := plan(o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want an error with %q", err, tt.want)
		}
	}
}

func TestStaticSettingsFollowTritonsRules(t *testing.T) {
	got := static{delay: 1000, preferred: 8}.batching()
	for _, want := range []string{"max_queue_delay_microseconds: 1000", "preferred_batch_size: [ 8 ]", "SHOAL_BATCHING"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	full, err := grids("full")
	if err != nil || len(full) != 20 {
		t.Errorf("got %d settings and %v, want 20", len(full), err)
	}
	named, err := grids("1000/8, 0/0")
	if want := []static{{1000, 8}, {0, 0}}; err != nil || !slices.Equal(named, want) {
		t.Errorf("a list: got %v and %v, want %v", named, err, want)
	}
}

// TestSlicesCountTogether: a setting whose batches are half as large in a third of the
// slices has five sixths of the throughput.
func TestSlicesCountTogether(t *testing.T) {
	var shoal, other []measure.Sample
	for i := range 120 {
		shoal = append(shoal, measure.Sample{Throughput: 1000})
		other = append(other, measure.Sample{Throughput: 1000 / float64(1+i%3/2)})
	}
	if got := compareSlices(shoal, other); math.Abs(got.value-1.2) > 1e-9 || got.low > 1.2 || got.high < 1.2 || got.high-got.low > 0.3 {
		t.Errorf("got %+v, want 1.2 and an interval around it", got)
	}
}

// TestSlicesOfAMachineWithTwoSpeeds: where the speed changes between two slices they tell
// nothing.
func TestSlicesOfAMachineWithTwoSpeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	speed := 1.0
	slice := func(throughput float64) measure.Sample {
		if rng.IntN(8) == 0 {
			speed = 2.6 - speed // 1 or 1.6
		}
		return measure.Sample{Throughput: throughput * speed * (1 + 0.03*rng.NormFloat64())}
	}
	var shoal, other []measure.Sample
	for range 100 {
		shoal, other = append(shoal, slice(970)), append(other, slice(1000))
	}
	got := compareSlices(shoal, other)
	if math.Abs(got.value-0.97) > 0.01 || got.high-got.low > 0.04 {
		t.Errorf("got %+v, want 0.97 and an interval of at most 0.04", got)
	}
}

// cellOf returns a measured cell in which every round has the same figures.
func cellOf(s setting, callers int, shoal, static, triton measure.Sample) measured {
	twice := func(s measure.Sample) []measure.Sample { return []measure.Sample{s, s} }
	return measured{
		cell:  cell{model: peer.MLP(), setting: s, callers: callers, protocol: http, generator: ours},
		shoal: twice(shoal), triton: twice(triton), auto: twice(shoal), static: twice(static), slices: [2][]measure.Sample{twice(shoal), twice(static)},
		limit: []batchCost{{Rows: 16, RowsPerSecond: 2000}, {Rows: 16, RowsPerSecond: 2000}}, chosen: "delay 0 us",
	}
}

func TestGatesAreThroughputAndP99(t *testing.T) {
	even := measure.Sample{Throughput: 1000, P50: 10, P99: 20, CPU: 5}
	with := func(throughput, p99 float64) measure.Sample {
		s := even
		s.Throughput, s.P99 = throughput, p99
		return s
	}
	dynamic, two := allSettings[1], allSettings[2]
	tests := []struct {
		name           string
		setting        setting
		callers        int
		pinned         bool
		static, triton measure.Sample
		missed         string
	}{
		{"all gates hold", two, 8, false, even, with(800, 20), ""},
		{"slower than the static setting", two, 8, false, with(1100, 20), with(800, 20), "throughput to static"},
		{"tail longer than the static setting's", two, 8, false, with(1000, 15), with(800, 20), "p99 to static"},
		{"two instances bring too little", two, 8, false, even, with(900, 20), "throughput to Triton"},
		{"one instance needs less", dynamic, 8, false, even, with(900, 20), ""},
		{"one caller shares nothing", two, 1, false, even, with(1000, 20), ""},
		{"tail beyond twice Triton's", two, 8, false, even, with(800, 9), "p99 to Triton"},
		{"tail of Triton's on cores of their own", two, 8, true, even, with(800, 19), "p99 to Triton"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judge(cellOf(tt.setting, tt.callers, even, tt.static, tt.triton), tt.pinned)
			if strings.Join(got.Missed, ", ") != tt.missed || (got.Margin < 1) != (tt.missed != "") {
				t.Errorf("got %q missed with margin %v, want %q", got.Missed, got.Margin, tt.missed)
			}
			if got.OfLimit != 0.5 || got.LimitRows != 16 {
				t.Errorf("got %v of the limit at %d rows, want half of it at 16", got.OfLimit, got.LimitRows)
			}
		})
	}
}

func TestLosersAreFirstAndEveryCellIsPrinted(t *testing.T) {
	even := measure.Sample{Throughput: 1000, P50: 10, P99: 20, CPU: 5}
	slow := measure.Sample{Throughput: 700, P50: 10, P99: 20, CPU: 5}
	r := results{Cells: []result{
		judge(cellOf(allSettings[1], 8, even, even, slow), false),
		judge(cellOf(allSettings[2], 64, slow, even, even), false),
	}}
	r.sort()
	page := r.page()
	loser, winner := strings.Index(page, "mlp dynamic2 c64 http ours"), strings.Index(page, "mlp dynamic c8 http ours")
	if loser < 0 || winner < 0 || loser > winner {
		t.Errorf("got the loser at %d and the winner at %d, want both and the loser first:\n%s", loser, winner, page)
	}
	if missed := strings.Join(r.missed(), "; "); !strings.Contains(missed, "c64 http ours: throughput to static") || !strings.Contains(missed, "50 % of the cells") {
		t.Errorf("got %q, want the loser's gate and that of all cells", missed)
	}
	if mean := r.mean(func(c result) *comparison { return c.ToStatic }); math.Abs(mean-math.Sqrt(0.7)) > 1e-9 {
		t.Errorf("got a geometric mean of %v, want the root of 0.7", mean)
	}
}

func TestDisturbedRoundsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runner{options: options{steal: 0.05, patience: time.Minute}}
		shares, runs := []float64{0.5, 0.06, 0.05, 0}, 0
		err := r.undisturbed(t.Context(), func() (float64, error) { runs++; return shares[runs-1], nil })
		if err != nil || runs != 3 {
			t.Errorf("got %d runs and %v, want the third to count", runs, err)
		}
		start := time.Now()
		if err := r.undisturbed(t.Context(), func() (float64, error) { return 1, nil }); err != nil || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want the last to count when the patience is used up", err, time.Since(start))
		}
		errs, answered := []error{measure.ErrNoAnswer, nil}, 0
		if err := r.undisturbed(t.Context(), func() (float64, error) { answered++; return 0, errs[answered-1] }); err != nil || answered != 2 {
			t.Errorf("a run without an answer: got %d runs and %v, want the second to count", answered, err)
		}
		if err := r.undisturbed(t.Context(), func() (float64, error) { return 0, measure.ErrNoAnswer }); !errors.Is(err, measure.ErrNoAnswer) {
			t.Errorf("never an answer: got %v, want that", err)
		}
	})
}

func TestCellWithoutAPeerIsPrinted(t *testing.T) {
	m := cellOf(allSettings[0], 1, measure.Sample{Throughput: 1}, measure.Sample{}, measure.Sample{})
	m.static, m.triton = nil, nil
	r := results{Cells: []result{judge(m, false)}}
	if page := r.page(); !strings.Contains(page, "mlp plain c1 http ours") || len(r.missed()) > 0 {
		t.Errorf("got %q missed and %s, want the cell without a gate", r.missed(), page)
	}
}

func TestCellsBeforeAFailureAreKept(t *testing.T) {
	even := measure.Sample{Throughput: 1000, P50: 10, P99: 20, CPU: 5}
	var r results
	r.add(modelCost{Model: "mlp", Instances: 1}, []measured{cellOf(allSettings[1], 8, even, even, even)})
	r.add(modelCost{}, nil) // a group that did not start
	if len(r.Cells) != 1 || len(r.Costs) != 1 {
		t.Errorf("got %d cells and %d costs, want those of the one cell", len(r.Cells), len(r.Costs))
	}
}

func TestTritonNeedsServerAndBackends(t *testing.T) {
	if _, err := (options{triton: "tritonserver"}).findLibrary(); err == nil || !strings.Contains(err.Error(), "--backends") {
		t.Errorf("got %v, want an error that names --backends", err)
	}
	dir := t.TempDir()
	o := options{triton: "tritonserver", backends: dir}
	if _, err := o.findLibrary(); err == nil || !strings.Contains(err.Error(), "libonnxruntime.so") {
		t.Errorf("got %v, want an error that names the library", err)
	}
	library := filepath.Join(dir, "onnxruntime", "libonnxruntime.so.1")
	if err := os.MkdirAll(filepath.Dir(library), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := o.findLibrary(); err != nil || got != library {
		t.Errorf("got %q, %v, want the library beside Triton's backend", got, err)
	}
}

func TestAloneSaysWhatBatchesCost(t *testing.T) {
	lib, err := ort.Open(onnxtest.Library(t), ort.Threads{})
	if err != nil {
		t.Fatal(err)
	}
	m := peer.Dense("dense", 4, 2)
	m.MaxBatch = 4
	a, err := openAlone(lib, t.TempDir(), m, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	costs, err := a.costs(t.Context(), 1)
	if err != nil || len(costs) != 3 || costs[2].Rows != 4 || costs[2].Micros <= 0 || costs[2].RowsPerSecond <= 0 {
		t.Errorf("got %+v, %v, want 1, 2 and 4 rows", costs, err)
	}
	if got := bestBatch([]batchCost{{Rows: 1, RowsPerSecond: 5}, {Rows: 2, RowsPerSecond: 9}, {Rows: 4, RowsPerSecond: 8}}); got.Rows != 2 {
		t.Errorf("got %d rows as the best batch, want 2", got.Rows)
	}
}

func TestRecordKeepsWhatWasNotMeasuredAgain(t *testing.T) {
	even := measure.Sample{Throughput: 1000, P50: 10, P99: 20, CPU: 5}
	run := func(commit string, cells ...measured) results {
		r := results{Facts: report.Facts{Commit: commit}}
		r.add(modelCost{Model: "mlp", Instances: 1}, cells)
		return r
	}
	withoutTriton := cellOf(allSettings[1], 8, even, even, even)
	withoutTriton.triton = nil
	o := options{Command: &report.Command{Name: "models", Out: t.TempDir()}}
	for _, r := range []results{
		run("first", cellOf(allSettings[1], 8, even, even, even), cellOf(allSettings[1], 64, even, even, even)),
		run("second", withoutTriton),
		run("third", cellOf(allSettings[1], 64, even, even, even)),
	} {
		if err := o.record(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readResults(filepath.Join(o.Out, "models.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, c := range got.Cells {
		cells = append(cells, fmt.Sprintf("%d %s %v", c.Callers, c.Commit, c.ToTriton != nil))
	}
	slices.Sort(cells)
	if want := []string{"64 third true", "8 first true", "8 second false"}; !slices.Equal(cells, want) || len(got.Costs) != 1 {
		t.Errorf("got %q and %d costs, want %q and one", cells, len(got.Costs), want)
	}
	if page, err := os.ReadFile(filepath.Join(o.Out, "models.md")); err != nil || !strings.Contains(string(page), "second") {
		t.Errorf("got %v and %s, want a page with every commit", err, page)
	}
	if err := os.WriteFile(filepath.Join(o.Out, "models.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := o.record(run("fourth")); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a file that is cut off: got %v, want an error that says what to do", err)
	}
}
