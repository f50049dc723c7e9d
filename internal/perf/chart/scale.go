package chart

import (
	"math"
	"strconv"
	"strings"
)

// A Scale maps values to 0 (left, below) to 1 (right, above) and says where its
// ticks are.
type Scale interface {
	At(v float64) float64
	Ticks() []Tick
}

// A Tick is a value with its name at an axis.
type Tick struct {
	Value float64
	Name  string
}

// wantedTicks is how many ticks a linear axis has, roughly.
const wantedTicks = 5

type linear struct{ low, high, step float64 }

// Linear returns a scale from low to high, both widened to round values.
func Linear(low, high float64) Scale {
	if least := max(1e-12, math.Abs(low)*1e-9); !(high-low > least) { // no range, or one that a float cannot represent
		high = low + max(1, math.Abs(low))
	}
	step := roundStep((high - low) / wantedTicks)
	return linear{math.Floor(low/step+1e-9) * step, math.Ceil(high/step-1e-9) * step, step}
}

// UpTo returns a scale from zero to exactly high, with ticks at round values.
func UpTo(high float64) Scale {
	if !(high > 0) {
		high = 1
	}
	return linear{0, high, roundStep(high / wantedTicks)}
}

// roundStep returns 1, 2 or 5 times a power of ten, no less than v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*power*(1+1e-9) {
			return f * power
		}
	}
	return 10 * power
}

func (l linear) At(v float64) float64 { return (v - l.low) / (l.high - l.low) }

func (l linear) Ticks() []Tick {
	var list []Tick
	for i := 0; ; i++ {
		v := l.low + float64(i)*l.step
		if v > l.high+l.step/1e6 {
			return list
		}
		if math.Abs(v) < l.step/1e6 {
			v = 0 // not -0
		}
		list = append(list, Tick{v, Number(v)})
	}
}

type logarithmic struct{ low, high float64 }

// Log returns a logarithmic scale that reaches from low to high; both must be
// more than zero.
func Log(low, high float64) Scale {
	low = floorRound(low)
	high = -floorRound(-high)
	if high <= low {
		high = 10 * low
	}
	return logarithmic{low, high}
}

// floorRound returns the next 1, 2 or 5 times a power of ten that is not above v,
// or, for a negative v, the negative of the next that is not below -v.
func floorRound(v float64) float64 {
	if v < 0 {
		return -roundStep(-v)
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if v >= f*power*(1-1e-9) {
			return f * power
		}
	}
	return power
}

func (l logarithmic) At(v float64) float64 {
	return math.Log(max(v, l.low)/l.low) / math.Log(l.high/l.low)
}

func (l logarithmic) Ticks() []Tick {
	factors := []float64{1, 2, 5}
	if l.high/l.low > 2000 {
		factors = factors[:1]
	}
	var list []Tick
	for power := math.Pow(10, math.Floor(math.Log10(l.low)+1e-9)); power <= l.high*1.001; power *= 10 {
		for _, f := range factors {
			if v := f * power; v >= l.low*0.999 && v <= l.high*1.001 {
				list = append(list, Tick{v, Number(v)})
			}
		}
	}
	return list
}

type bands struct{ names []string }

// Bands returns a scale of names side by side; the value of the first is 0.
func Bands(names []string) Scale { return bands{names} }

func (b bands) At(v float64) float64 { return (v + 0.5) / float64(max(1, len(b.names))) }

func (b bands) Ticks() []Tick {
	list := make([]Tick, len(b.names))
	for i, n := range b.names {
		list[i] = Tick{float64(i), n}
	}
	return list
}

type spectrum struct{ nines float64 }

// Spectrum returns a scale of quantiles that gives each additional nine the
// same width: 0.9, 0.99, 0.999. It ends at the quantile most, which is below 1.
func Spectrum(most float64) Scale { return spectrum{max(1, nines(most))} }

func nines(q float64) float64 { return -math.Log10(1 - min(max(q, 0), 1-1e-9)) }

func (s spectrum) At(q float64) float64 { return min(1, nines(q)/s.nines) }

func (s spectrum) Ticks() []Tick {
	list := []Tick{{0, "0%"}, {0.5, "50%"}}
	name := "90"
	for n := 1.0; n <= s.nines*1.001; n++ {
		list = append(list, Tick{1 - math.Pow(10, -n), name + "%"})
		switch name {
		case "90":
			name = "99"
		case "99":
			name = "99.9"
		default:
			name += "9"
		}
	}
	return list
}

// Number formats a value for people: about three digits, with k and M for
// thousands and millions.
func Number(v float64) string {
	unit := ""
	switch a := math.Abs(v); {
	case a >= 1e6:
		v, unit = v/1e6, "M"
	case a >= 1e4:
		v, unit = v/1e3, "k"
	}
	digits := 2
	switch a := math.Abs(v); {
	case a >= 100:
		digits = 0
	case a >= 10:
		digits = 1
	case a < 1 && a > 0:
		digits = min(9, 1-int(math.Floor(math.Log10(a))))
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + unit
}
