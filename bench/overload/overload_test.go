package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/bench/internal/peer"
)

// well is an outcome that meets every floor, just.
func well() outcome {
	return outcome{
		Row: "r", Capacity: 1000, Goodput: 900, Refused: times{Count: 1, P99: 5}, SentLate: times{P99: 5},
		Memory: memory{Early: 100, Late: 110}, Normal: times{P99: 3}, First: 6,
	}
}

func TestMissedNamesEachFloor(t *testing.T) {
	tests := []struct {
		name   string
		change func(*outcome)
		want   string
	}{
		{"all is well", func(*outcome) {}, ""},
		{"too few good answers", func(o *outcome) { o.Goodput = 890 }, "r: goodput is 89% of the capacity (at least 90%)"},
		{"nothing refused", func(o *outcome) { o.Refused = times{} }, "r: nothing was refused: this was no overload"},
		{"late refusals", func(o *outcome) { o.Refused.P99 = 5.5 }, "r: refusals come 5.50 ms late at p99 (at most 5)"},
		{"refusals on time after a timeout", func(o *outcome) { o.Timeout, o.Refused = 100, times{Count: 1, Min: 100, P99: 105} }, ""},
		{"late after a timeout", func(o *outcome) { o.Timeout, o.Refused = 100, times{Count: 1, Min: 100, P99: 107} }, "r: refusals come 7.00 ms late at p99 (at most 5)"},
		{"before the timeout", func(o *outcome) { o.Timeout, o.Refused = 100, times{Count: 1, Min: 2, P99: 101} }, "r: a request was refused after 2.00 ms (not before 100)"},
		{"lost requests", func(o *outcome) { o.Lost = map[string]int64{"timeout": 3} }, "r: requests were lost: map[timeout:3]"},
		{"memory that grows", func(o *outcome) { o.Memory.Late = 111 }, "r: memory grew from 100 to 111 MB (at most 10%)"},
		{"a slow first request", func(o *outcome) { o.First = 7 }, "r: the first request afterwards took 7.00 ms (at most 2 times the normal p99 of 3.00)"},
		{"a generator that fell behind", func(o *outcome) { o.SentLate.P99 = 6 }, "r: the generator was 6.00 ms late at p99 (at most 5): the machine is too busy to tell"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := well()
			tt.change(&o)
			got := strings.Join(o.missed(), "; ")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			page := results{Rows: []outcome{o}}.page()
			if strings.Contains(page, "MISSED") != (tt.want != "") || !strings.Contains(page, tt.want) {
				t.Errorf("got page\n%s\nwant %q in it", page, tt.want)
			}
		})
	}
}

func TestMedianIsTheRoundInTheMiddle(t *testing.T) {
	var rounds []outcome
	for _, goodput := range []float64{950, 800, 920} {
		o := well()
		o.Goodput = goodput
		rounds = append(rounds, o)
	}
	got := median(rounds)
	if got.Goodput != 920 {
		t.Errorf("got the round with goodput %v, want 920", got.Goodput)
	}
	if diff := cmp.Diff([]float64{0.8, 0.92, 0.95}, got.Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if text := shares(got); text != "92% (80-95)" {
		t.Errorf("got %q, want 92%% (80-95)", text)
	}
}

func TestGrowthLeavesTheBeginningOut(t *testing.T) {
	tests := []struct {
		name  string
		sizes []float64
		want  memory
	}{
		{"a start that takes memory", []float64{10, 50, 90, 91, 100, 100, 101, 102, 103, 104}, memory{Early: 90.5, Late: 103.5}},
		{"two readings", []float64{10, 20}, memory{Early: 20, Late: 20}},
		{"one reading", []float64{10}, memory{Early: 10, Late: 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := growth(tt.sizes); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRowsAreServedWithTheirPolicyAndBackend(t *testing.T) {
	shoal := filepath.Join(t.TempDir(), "shoal")
	if err := os.WriteFile(shoal, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, r := range allRows() {
		t.Run(r.name, func(t *testing.T) {
			c, err := r.command(shoal, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(c.Args[len(c.Args)-1], r.model.Name, "config.pbtxt"))
			if err != nil {
				t.Fatal(err)
			}
			backend := `backend: "onnxruntime"`
			if r.sleeps {
				backend = `backend: "identity"`
			}
			for _, want := range []string{backend, "max_queue_size: ", "default_timeout_microseconds: ", "timeout_action: REJECT"} {
				if !strings.Contains(string(b), want) {
					t.Errorf("got configuration\n%s\nwant %s in it", b, want)
				}
			}
		})
	}
}

func TestChooseTakesRowsByWords(t *testing.T) {
	got, err := choose(allRows(), []string{"grpc", "timeout"})
	if err != nil || len(got) != 2 || got[0].name != "mlp-grpc" || got[1].name != "timeout-http" {
		t.Errorf("got %v, %v, want mlp-grpc and timeout-http", got, err)
	}
	if _, err := choose(allRows(), []string{"nosuch"}); err == nil || !strings.Contains(err.Error(), "mlp-http") {
		t.Errorf("got %v, want an error that names the rows", err)
	}
}

func TestRepeatMakesRowsOfOne(t *testing.T) {
	got := repeat(peer.Tensor{Name: "x", Shape: []int64{1, 2}, Data: []float32{3, 4}}, 2)
	want := peer.Tensor{Name: "x", Shape: []int64{2, 2}, Data: []float32{3, 4, 3, 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tensor (-want +got):\n%s", diff)
	}
}

func TestCoresAreCPUTimeByTime(t *testing.T) {
	if got := cores(3*time.Second, 2*time.Second); got != 1.5 {
		t.Errorf("got %v, want 1.5", got)
	}
}
