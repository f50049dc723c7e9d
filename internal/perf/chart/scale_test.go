package chart

import (
	"math"
	"strings"
	"testing"
)

func names(ticks []Tick) string {
	var list []string
	for _, t := range ticks {
		list = append(list, t.Name)
	}
	return strings.Join(list, " ")
}

func TestTicksAreRoundAndCoverTheValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		scale Scale
		want  string
	}{
		{"from zero", Linear(0, 9.3), "0 2 4 6 8 10"},
		{"both sides of zero", Linear(-12, 12), "-15 -10 -5 0 5 10 15"},
		{"nothing", Linear(0, 0), "0 0.2 0.4 0.6 0.8 1"},
		{"too small a difference for a float", Linear(1e15, 1e15+1e-3), "1000000000M 1200000000M 1400000000M 1600000000M 1800000000M 2000000000M"},
		{"thousands", Linear(0, 43000), "0 10k 20k 30k 40k 50k"},
		{"exactly up to the end", UpTo(15.3), "0 5 10 15"},
		{"up to nothing", UpTo(0), "0 0.2 0.4 0.6 0.8 1"},
		{"two decades", Log(0.03, 4), "0.02 0.05 0.1 0.2 0.5 1 2 5"},
		{"many decades", Log(0.002, 900), "0.01 0.1 1 10 100 1000"},
		{"one value", Log(3, 3), "2 5"},
		{"names", Bands([]string{"a", "b"}), "a b"},
		{"three nines", Spectrum(0.9995), "0% 50% 90% 99% 99.9%"},
		{"too few for a nine", Spectrum(0.5), "0% 50% 90%"},
	} {
		if got := names(c.scale.Ticks()); got != c.want {
			t.Errorf("%s: ticks %q, want %q", c.name, got, c.want)
		}
	}
}

func TestScalesMapTheirEndsToZeroAndOne(t *testing.T) {
	for _, c := range []struct {
		name     string
		scale    Scale
		low, mid float64
		high     float64
	}{
		{"linear", Linear(0, 10), 0, 5, 10},
		{"logarithmic", Log(0.1, 10), 0.1, 1, 10},
		{"nines", Spectrum(0.9999), 0, 0.99, 0.9999},
	} {
		for _, p := range []struct{ at, want float64 }{{c.low, 0}, {c.mid, 0.5}, {c.high, 1}} {
			if got := c.scale.At(p.at); math.Abs(got-p.want) > 1e-6 {
				t.Errorf("%s: %v is at %v, want %v", c.name, p.at, got, p.want)
			}
		}
	}
	if got := Bands([]string{"a", "b"}).At(1); got != 0.75 {
		t.Errorf("the second of two bands is at %v, want 0.75", got)
	}
	if got := Log(1, 10).At(0); got != 0 {
		t.Errorf("zero on a logarithmic scale is at %v, want its lower end", got)
	}
}

func TestNumberHasThreeDigitsOrSo(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 1.25: "1.25", 12.34: "12.3", 123.4: "123", 1234: "1234", 12345: "12.3k", 1234567: "1.23M", 0.0123: "0.012", -0.5: "-0.5", 1e-30: "0",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}
