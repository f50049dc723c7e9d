package main

import (
	"strings"
	"testing"
)

func TestCompareJudgesTheMedianOfTheRoundsRatios(t *testing.T) {
	rounds := []pair{ // the machine slows down: medians of the figures would mislead
		{Shoal: sample{CPU: 10, P50: 80}, Triton: sample{CPU: 40, P50: 100}},
		{Shoal: sample{CPU: 40, P50: 70}, Triton: sample{CPU: 100, P50: 100}},
		{Shoal: sample{CPU: 90, P50: 60}, Triton: sample{CPU: 300, P50: 100}},
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
			got := compare(tt.row, rounds)
			if got.Ratio != tt.want || got.Pass != tt.pass {
				t.Errorf("got ratio %v, pass %v, want %v, %v", got.Ratio, got.Pass, tt.want, tt.pass)
			}
			if got.Shoal.CPU != 40 || got.Triton.CPU != 100 {
				t.Errorf("got medians %v and %v, want 40 and 100", got.Shoal.CPU, got.Triton.CPU)
			}
		})
	}
}

func TestMissedRowsAreNamedInTheTable(t *testing.T) {
	even := []pair{{Shoal: sample{CPU: 1, P50: 1}, Triton: sample{CPU: 1, P50: 1}}}
	r := results{Rows: []comparison{
		compare(row{jsonSmall, 16, cpu, 0.35}, even),
		compare(row{grpcBig, 8, cpu, 1.1}, even),
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
		words string
		want  int
	}{
		{"", len(allRows)},
		{"http-json-c16", 1},
		{"602KB", 4},
		{"http-json,grpc-c64", 4},
	}
	for _, tt := range tests {
		got, err := choose(allRows, splitWords(tt.words))
		if err != nil || len(got) != tt.want {
			t.Errorf("%q: got %d rows, %v, want %d", tt.words, len(got), err, tt.want)
		}
	}
	if _, err := choose(allRows, []string{"nope"}); err == nil || !strings.Contains(err.Error(), "grpc-602KB-c8") {
		t.Errorf("got %v, want an error that names the rows", err)
	}
}

func TestHalvesShareNothingButASingleCore(t *testing.T) {
	tests := []struct{ cores, server, client int }{{1, 1, 1}, {2, 1, 1}, {3, 1, 2}, {8, 4, 4}}
	for _, tt := range tests {
		server, client := halves(tt.cores)
		if len(server) != tt.server || len(client) != tt.client {
			t.Errorf("%d cores: got %v and %v, want %d and %d", tt.cores, server, client, tt.server, tt.client)
		}
	}
}
