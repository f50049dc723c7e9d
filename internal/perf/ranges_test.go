package perf

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRangeReadsStartEndAndStep(t *testing.T) {
	for text, want := range map[string]Range{
		"8":       {8, 8, 1, true},
		"1:4":     {1, 4, 1, false},
		"2:16:2":  {2, 16, 2, false},
		"10:0:10": {10, 0, 10, false},
		"1:1:1":   {1, 1, 1, false},
	} {
		if got, err := ParseRange(text, true); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	if got, err := ParseRange("0.5:2.5:0.5", false); err != nil || got != (Range{0.5, 2.5, 0.5, false}) {
		t.Errorf("got %+v, %v, want fractions", got, err)
	}
}

func TestParseRangeRefusesWhatMakesNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"":          "not a number",
		"x":         "not a number",
		"1:2:3:4":   "more than start:end:step",
		"0":         "want more than 0",
		"-1":        "not a number from 0",
		"1:5:0":     "has the step 0",
		"5:1":       "ends below its start",
		"1.5":       "not a whole number",
		"NaN":       "not a",
		"Inf":       "not a number from 0",
		"1:":        "not a number",
		"1e300:1:1": "not a number from 0",
	} {
		if got, err := ParseRange(text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want %q", text, got, err, want)
		}
	}
}

// visit returns the levels that a search measures when those above limit are over
// the latency.
func visit(s search, limit float64) []float64 {
	var list []float64
	passed := true
	for len(list) < 100 {
		v, ok := s.next(passed)
		if !ok {
			break
		}
		list = append(list, v)
		passed = v <= limit
	}
	return list
}

func TestSearchVisitsItsLevels(t *testing.T) {
	all := math.Inf(1)
	for _, c := range []struct {
		name  string
		s     search
		limit float64
		want  []float64
	}{
		{"one level", search{levels: Range{8, 8, 1, true}}, all, []float64{8}},
		{"a range", search{levels: Range{1, 4, 1, false}}, all, []float64{1, 2, 3, 4}},
		{"a step that does not meet the end", search{levels: Range{2, 7, 2, false}}, all, []float64{2, 4, 6}},
		{"fractions that do not add up", search{levels: Range{0.1, 0.5, 0.1, false}}, all, []float64{0.1, 0.2, 0.30000000000000004, 0.4, 0.5}},
		{"the latency ends it", search{levels: Range{1, 8, 1, false}}, 3, []float64{1, 2, 3, 4}},
		{"no end but the latency", search{levels: Range{1, 0, 10, false}}, 25, []float64{1, 11, 21, 31}},
		{"the start is over the limit", search{levels: Range{4, 8, 1, false}}, 3, []float64{4}},
		{"halving downwards", search{levels: Range{1, 16, 1, false}, binary: true}, 1, []float64{1, 16, 8, 4, 2}},
		{"halving between", search{levels: Range{1, 16, 1, false}, binary: true}, 11, []float64{1, 16, 8, 12, 10, 11}},
		{"halving coarsely", search{levels: Range{1, 100, 10, false}, binary: true}, 40, []float64{1, 100, 50, 25, 37, 43}},
		{"the end passes", search{levels: Range{1, 16, 1, false}, binary: true}, all, []float64{1, 16}},
		{"halving, the start fails", search{levels: Range{4, 16, 1, false}, binary: true}, 3, []float64{4}},
		{"halving nothing", search{levels: Range{4, 4, 1, false}, binary: true}, all, []float64{4}},
	} {
		if got := visit(c.s, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("1:16:2", true)
	f.Add("0.5", false)
	f.Fuzz(func(t *testing.T, text string, whole bool) {
		r, err := ParseRange(text, whole)
		if err != nil {
			return
		}
		for _, binary := range []bool{false, true} {
			if list := visit(search{levels: r, binary: binary}, r.Start*10); len(list) == 0 || list[0] != r.Start {
				t.Errorf("%q: got %v, want levels from %v on", text, list, r.Start)
			}
		}
	})
}

func TestRateOfGapsIsTheirMean(t *testing.T) {
	if got := RateOf([]time.Duration{100_000, 200_500, 300_000}); math.Abs(got.Start-3/0.0006005) > 1e-6 || !got.Single {
		t.Errorf("got %+v, want one level of 3 in 600.5 µs", got)
	}
}

func TestPartsAreModelsWithVersions(t *testing.T) {
	if got, err := ParseParts("a:3,b"); err != nil || len(got) != 2 || got[0] != (Part{"a", "3"}) || got[1] != (Part{Model: "b"}) {
		t.Errorf("got %v, %v, want a in version 3, and b", got, err)
	}
	for _, text := range []string{"", "a,,b", "a:x", ":3", "a:0"} {
		if got, err := ParseParts(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
