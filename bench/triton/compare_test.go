package main

import (
	"strings"
	"testing"

	"shoal/bench/internal/measure"
)

func TestCompareJudgesTheMedianOfTheRoundsRatios(t *testing.T) {
	rounds := []pair{ // the machine slows down: medians of the figures would mislead
		{Shoal: measure.Sample{CPU: 10, P50: 80, P99: 10}, Triton: measure.Sample{CPU: 40, P50: 100, P99: 10}},
		{Shoal: measure.Sample{CPU: 40, P50: 70, P99: 10}, Triton: measure.Sample{CPU: 100, P50: 100, P99: 10}},
		{Shoal: measure.Sample{CPU: 90, P50: 60, P99: 10}, Triton: measure.Sample{CPU: 300, P50: 100, P99: 10}},
	}
	tests := []struct {
		name string
		row  row
		want float64
		pass bool
	}{
		{"CPU below its floor", row{jsonSmall, 16, cpu, 0.35}, 0.3, true},
		{"CPU above its floor", row{jsonSmall, 16, cpu, 0.29}, 0.3, false},
		{"latency at its floor", row{jsonSmall, 1, p50, 0.7}, 0.7, true},
		{"latency above its floor", row{jsonSmall, 1, p50, 0.65}, 0.7, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := compare(tt.row, rounds, pinnedP99)
			if got.Ratio != tt.want || got.Pass != tt.pass {
				t.Errorf("got ratio %v, pass %v, want %v, %v", got.Ratio, got.Pass, tt.want, tt.pass)
			}
			if got.Shoal.CPU != 40 || got.Triton.CPU != 100 {
				t.Errorf("got medians %v and %v, want 40 and 100", got.Shoal.CPU, got.Triton.CPU)
			}
		})
	}
}

func TestTailIsAGateOfEveryRow(t *testing.T) {
	rounds := []pair{{Shoal: measure.Sample{CPU: 1, P50: 1, P99: 15}, Triton: measure.Sample{CPU: 10, P50: 10, P99: 10}}}
	for limit, pass := range map[float64]bool{sharedP99: true, pinnedP99: false} {
		if got := compare(row{jsonSmall, 16, cpu, 0.35}, rounds, limit); got.Pass != pass || got.P99Ratio != 1.5 {
			t.Errorf("limit %v: got pass %v at a p99 of %v of Triton's, want %v at 1.5", limit, got.Pass, got.P99Ratio, pass)
		}
	}
}

func TestMissedRowsAreNamedInTheTable(t *testing.T) {
	even := []pair{{Shoal: measure.Sample{CPU: 1, P50: 1, P99: 10}, Triton: measure.Sample{CPU: 1, P50: 1, P99: 10}}}
	r := results{Rows: []comparison{
		compare(row{jsonSmall, 16, cpu, 0.35}, even, pinnedP99),
		compare(row{grpcBig, 8, cpu, 1.1}, even, pinnedP99),
	}}
	if got := strings.Join(r.missed(), " "); got != "http-json-c16" {
		t.Errorf("got %q, want http-json-c16", got)
	}
	if page := r.page(); strings.Count(page, "MISSED") != 1 || strings.Count(page, "pass") != 1 {
		t.Errorf("got %s, want one MISSED and one pass", page)
	}
}

func TestChooseTakesRowsByPartsOfTheirNames(t *testing.T) {
	tests := []struct {
		words     string
		rows, mlp int
	}{
		{"", len(allRows), len(mlpRows)},
		{"http-json-c16", 1, 0},
		{"602KB", 4, 0},
		{"http-json,grpc-c64", 4, 0},
		{"mlp", 0, 11},
		{"dynamic-c16", 1, 1},
	}
	for _, tt := range tests {
		rows, mlps, err := chooseAll(splitWords(tt.words))
		if err != nil || len(rows) != tt.rows || len(mlps) != tt.mlp {
			t.Errorf("%q: got %d and %d rows, %v, want %d and %d", tt.words, len(rows), len(mlps), err, tt.rows, tt.mlp)
		}
	}
	if _, _, err := chooseAll([]string{"nope"}); err == nil || !strings.Contains(err.Error(), "grpc-602KB-c8") || !strings.Contains(err.Error(), "mlp-dynamic-2-c8") {
		t.Errorf("got %v, want an error that names the rows of both tables", err)
	}
}

func TestMLPIsJudgedByItsMeanBatch(t *testing.T) {
	gated := mlpRow{label: "mlp-dynamic", callers: 16, triton: recorded{MeanBatch: 8.8}, gated: true}
	free := gated
	free.gated = false
	batches := func(sizes ...float64) (rounds []measure.Sample) {
		for _, s := range sizes {
			rounds = append(rounds, measure.Sample{MeanBatch: s})
		}
		return rounds
	}
	tests := []struct {
		name   string
		row    mlpRow
		rounds []measure.Sample
		pass   bool
	}{
		{"the median is above", gated, batches(2, 9, 10), true},
		{"the median is below", gated, batches(2, 8.7, 10), false},
		{"nothing is asked", free, batches(1), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := results{MLP: []mlpResult{summarise(tt.row, tt.rounds)}}
			if got := len(r.missed()) == 0; got != tt.pass {
				t.Errorf("got pass %v, want %v", got, tt.pass)
			}
			if got := !strings.Contains(r.page(), "MISSED"); got != tt.pass {
				t.Errorf("got %s, want it to agree", r.page())
			}
		})
	}
}

func TestModelsAreServedOnce(t *testing.T) {
	var names []string
	for _, m := range modelsOf(allRows, mlpRows) {
		names = append(names, m.Name)
	}
	want := "identity identity_big identity_dynamic identity_delay identity_dynamic_2 mlp mlp_dynamic mlp_dynamic_2"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
