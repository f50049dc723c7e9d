package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

// The MLP runs on Shoal alone: the Triton that pip brings has no ONNX backend.
// Beside it stand the figures of a Triton that had one, recorded on another day on
// a machine with two cores, with NVIDIA's perf_analyzer as the load.
var (
	mlpPlain   = peer.MLP()
	mlpDynamic = peer.MLP().As("mlp_dynamic", 1, dynamicBatching)
	mlpTwice   = peer.MLP().As("mlp_dynamic_2", 2, dynamicBatching)
)

// recorded is what Triton did.
type recorded struct {
	Throughput float64 `json:"requests_per_second"`
	CPU        float64 `json:"cpu_us"`
	P50        float64 `json:"p50_us"`
	MeanBatch  float64 `json:"mean_batch"`
}

// An mlpRow is a load of the MLP. Where 8 or 16 callers batch on one instance, the
// mean batch may not be below Triton's. 64 callers are divided into groups, one of
// which runs while the others return.
type mlpRow struct {
	label   string
	model   peer.Model
	callers int
	triton  recorded
	gated   bool
}

func (r mlpRow) name() string { return fmt.Sprintf("%s-c%d", r.label, r.callers) }

var mlpRows = []mlpRow{
	{"mlp", mlpPlain, 1, recorded{1096, 792, 894, 1}, false},
	{"mlp", mlpPlain, 8, recorded{1442, 770, 5459, 1}, false},
	{"mlp", mlpPlain, 16, recorded{1469, 767, 10728, 1}, false},
	{"mlp", mlpPlain, 64, recorded{1346, 767, 46704, 1}, false},
	{"mlp-dynamic", mlpDynamic, 1, recorded{957, 914, 1024, 1}, false},
	{"mlp-dynamic", mlpDynamic, 8, recorded{3872, 291, 2007, 4.2}, true},
	{"mlp-dynamic", mlpDynamic, 16, recorded{5292, 206, 2914, 8.8}, true},
	{"mlp-dynamic", mlpDynamic, 64, recorded{5902, 160, 10472, 44}, false},
	{"mlp-dynamic-2", mlpTwice, 8, recorded{3883, 384, 1909, 2.9}, false},
	{"mlp-dynamic-2", mlpTwice, 16, recorded{5205, 272, 2950, 5.5}, false},
	{"mlp-dynamic-2", mlpTwice, 64, recorded{7413, 172, 8379, 21}, false},
}

// load returns what the row does to a server.
func (r mlpRow) load(s *peer.Server, warmup, duration time.Duration) (measure.Load, error) {
	target, err := measure.Binary(s.HTTP, r.model)
	return measure.Load{Model: r.model.Name, Target: target, Callers: r.callers, Warmup: warmup, Duration: duration}, err
}

// An mlpResult is what all rounds of a row came to.
type mlpResult struct {
	Row    string           `json:"row"`
	Gated  bool             `json:"gated"`
	Pass   bool             `json:"pass"`
	Triton recorded         `json:"triton_recorded"`
	Shoal  measure.Sample   `json:"shoal"` // medians
	Rounds []measure.Sample `json:"rounds"`
}

func summarise(r mlpRow, rounds []measure.Sample) mlpResult {
	m := mlpResult{Row: r.name(), Gated: r.gated, Triton: r.triton, Rounds: rounds, Shoal: measure.Medians(rounds)}
	m.Pass = !r.gated || m.Shoal.MeanBatch >= r.triton.MeanBatch
	return m
}

// runMLP loads Shoal with every row in every round.
func runMLP(ctx context.Context, o options, rows []mlpRow, shoal *peer.Server) ([]mlpResult, error) {
	rounds := make([][]measure.Sample, len(rows))
	for round := range o.rounds {
		for i, r := range rows {
			l, err := r.load(shoal, o.warmup, o.duration)
			if err != nil {
				return nil, err
			}
			got, err := measure.Run(ctx, shoal, l)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], got)
			fmt.Fprintf(os.Stderr, "round %d/%d %-22s CPU %6.1f   p50 %6.0f   mean batch %4.1f   %5.0f req/s\n",
				round+1, o.rounds, r.name(), got.CPU, got.P50, got.MeanBatch, got.Throughput)
		}
	}
	var all []mlpResult
	for i, r := range rows {
		all = append(all, summarise(r, rounds[i]))
	}
	return all, nil
}

// mlpTable returns the rows as a table.
func mlpTable(rows []mlpResult) string {
	cells := [][]string{{
		"row", "mean batch Shoal", "Triton", "", "req/s Shoal", "Triton", "CPU us/req Shoal", "Triton", "p50 us Shoal", "Triton", "p99 us Shoal", "client us/req",
	}}
	for _, r := range rows {
		verdict := ""
		switch {
		case r.Gated && r.Pass:
			verdict = "pass"
		case r.Gated:
			verdict = "MISSED"
		}
		cells = append(cells, []string{
			r.Row, fmt.Sprintf("%.1f", r.Shoal.MeanBatch), fmt.Sprintf("%.1f", r.Triton.MeanBatch), verdict,
			fmt.Sprintf("%.0f", r.Shoal.Throughput), fmt.Sprintf("%.0f", r.Triton.Throughput),
			fmt.Sprintf("%.0f", r.Shoal.CPU), fmt.Sprintf("%.0f", r.Triton.CPU),
			fmt.Sprintf("%.0f", r.Shoal.P50), fmt.Sprintf("%.0f", r.Triton.P50),
			fmt.Sprintf("%.0f", r.Shoal.P99), fmt.Sprintf("%.1f", r.Shoal.ClientCPU),
		})
	}
	return report.Table(cells)
}
