package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shoal/bench/internal/measure"
)

// climbed returns the results of one model with 1 and 16 callers in two rounds:
// at 16 dynamic batching answers gain times as much, and p95 is ratio times as
// long.
func climbed(gain, ratio float64) results {
	a := ascent{callers: []int{1, 16}, floor: 3}
	a.model.Name = "mlp"
	cells := emptyCells(a)
	for i := range cells {
		c := &cells[i]
		for _, speed := range []float64{1, 0.5} { // the machine slows down
			s := measure.Sample{Throughput: 1000 * speed, P95: 8000 / speed, CPU: 700 / speed}
			if c.step > 0 && c.Callers == 16 {
				s.Throughput *= gain
				s.P95 *= ratio
				s.CPU /= gain
			}
			c.Rounds = append(c.Rounds, s)
		}
	}
	return results{Models: []result{judge(a, cells)}}
}

func TestGainsAreMediansOfTheRoundsOwnRatios(t *testing.T) {
	r := climbed(4, 0.25)
	want := []gain{
		{"dynamic batching", 1, 1, 1, 1, 1, 1},
		{"dynamic batching", 16, 4, 4, 4, 0.25, 0.25},
		{"dynamic batching, 2 instances", 1, 1, 1, 1, 1, 1},
		{"dynamic batching, 2 instances", 16, 4, 4, 4, 0.25, 0.25},
	}
	for i, g := range r.Models[0].Gains {
		if g != want[i] {
			t.Errorf("got %+v, want %+v", g, want[i])
		}
	}
	if got := r.Models[0].Cells[0].Median.Throughput; got != 750 {
		t.Errorf("got a median of %v, want 750", got)
	}
}

func TestFloorsAreAboutDynamicBatchingAt16Callers(t *testing.T) {
	tests := []struct {
		name        string
		gain, ratio float64
		missed      string
	}{
		{"both hold", 3, 0.9, ""},
		{"too little throughput", 2.9, 0.9, "mlp: 2.9 times the throughput (at least 3)"},
		{"p95 does not fall", 3, 1, "mlp: 1.00 times the p95 (less than 1)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := climbed(tt.gain, tt.ratio)
			if got := strings.Join(r.missed(), ", "); got != tt.missed {
				t.Errorf("got %q, want %q", got, tt.missed)
			}
			if got := strings.Count(r.page(), "MISSED"); (got > 0) != (tt.missed != "") {
				t.Errorf("got %d times MISSED in the page, want it to agree", got)
			}
		})
	}
}

func TestPlotIsWellFormedAndToScale(t *testing.T) {
	image := climbed(4, 0.25).plot()
	for d := xml.NewDecoder(strings.NewReader(image)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("got %v, want well-formed XML", err)
		}
	}
	heights := make(map[string][]string) // of bars, by colour
	for _, m := range regexp.MustCompile(`<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)" fill="(#\w+)"/>`).FindAllStringSubmatch(image, -1) {
		if m[1] != "12" { // the legend
			heights[m[2]] = append(heights[m[2]], m[1])
		}
	}
	var plain, dynamic float64
	fmt.Sscan(heights[colours[0]][1], &plain)
	fmt.Sscan(heights[colours[1]][1], &dynamic)
	if len(heights[colours[0]]) != 4 || dynamic/plain < 3.9 || dynamic/plain > 4.1 {
		t.Errorf("got bars %v, want four of each colour and the second of dynamic batching four times as high", heights)
	}
}

func TestAxesHaveRoundMarks(t *testing.T) {
	tests := []struct {
		most, want float64
	}{{0, 1}, {1.9, 0.2}, {3, 0.5}, {9, 1}, {45, 5}, {6700, 1000}}
	for _, tt := range tests {
		if got := tick(tt.most); got != tt.want {
			t.Errorf("up to %v: got marks every %v, want %v", tt.most, got, tt.want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 800: "800", 1200: "1,200", 1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestChooseTakesModelsAndCallers(t *testing.T) {
	got, err := choose(options{rounds: 1, model: "credsweeper", callers: "4,2"})
	if err != nil || len(got) != 1 || got[0].model.Name != "credsweeper" || len(got[0].callers) != 2 || got[0].callers[0] != 4 {
		t.Errorf("got %+v, %v, want credsweeper at 4 and 2 callers", got, err)
	}
	for _, o := range []options{{rounds: 1, model: "resnet"}, {rounds: 1, callers: "0"}, {rounds: 1, callers: "x"}, {}} {
		if got, err := choose(o); err == nil {
			t.Errorf("%+v: got %v, want an error", o, got)
		}
	}
}

func TestLoadAtMeasuresARunningServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"model_stats":[]}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(append([]byte("{}"), make([]byte, 64)...))
	}))
	t.Cleanup(s.Close)
	o := options{rounds: 1, at: s.Listener.Addr().String(), model: "mlp", callers: "1,3", duration: 20 * time.Millisecond}
	chosen, err := choose(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := loadAt(t.Context(), o, chosen, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "callers  3: ") || !strings.Contains(lines[1], "infer/s, p50") {
		t.Errorf("got %s, want a line for 1 and one for 3 callers", out.String())
	}
	if err := loadAt(t.Context(), o, append(chosen, chosen...), &out); err == nil {
		t.Error("got no error, want one when no model is chosen")
	}
}

func TestTutorialGetsTheFiguresAndKeepsTheRest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tutorial.md")
	if err := os.WriteFile(path, []byte("# Batching\n"+figuresBegin+"old\n"+figuresEnd+"More.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := climbed(4, 0.25)
	for range 2 { // the second time finds what the first has written
		if err := r.updateTutorial(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if !strings.HasPrefix(page, "# Batching\n"+figuresBegin) || !strings.HasSuffix(page, figuresEnd+"More.\n") || strings.Contains(page, "old") {
		t.Errorf("got %s, want only the figures replaced", page)
	}
	if want := "At 16 callers dynamic batching answers 4.0 times the requests, with 0.25 times the p95 and 0.25 times the CPU for each."; !strings.Contains(page, want) {
		t.Errorf("got %s, want %q in it", page, want)
	}
	if _, err := replaceFigures("# Batching\n", ""); err == nil {
		t.Error("got no error, want one of a page without a place for figures")
	}
}

func TestWriteMLPMakesItsFolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models", "mlp", "1", "model.onnx")
	if err := writeMLP(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() < 13_000_000 {
		t.Errorf("got %v, %v, want a file of 3.4 million weights", info, err)
	}
}
