// Package histogram counts values in buckets that are narrow enough for
// quantiles and fit both kinds of Prometheus histogram exactly: the classic one
// with chosen bounds, and the native one with bounds at powers of 2^(1/16). The
// engine adds to a Histogram, which costs one atomic addition and no lock;
// metrics are made from its Snapshots.
package histogram

import (
	"math"
	"slices"
)

// Schema is the resolution of the native buckets in Prometheus' numbering: each
// is 2^(1/2^Schema) times as wide as the one below, 4.4 %.
const (
	Schema      = 4
	perOctave   = 1 << Schema
	slotBits    = 6 // a few slots per bucket in each octave
	slotsOctave = 1 << slotBits
)

// A Layout is the cells in which values are counted, between the bounds of
// native and of classic buckets. It does not change.
type Layout struct {
	low, high int       // native buckets from 2^low to 2^high
	bounds    []float64 // the classic ones, rising
	upper     []float64 // by cell: the largest value in it; the last is +Inf
	native    []int32   // by cell: its native bucket
	start     []uint16  // by slot: the first cell of its values
}

// NewLayout returns cells for values from 2^low to 2^high, cut at the rising
// bounds, which are the classic buckets, and at those in also. Values outside
// the range are counted, but only the bounds distinguish them.
func NewLayout(low, high int, bounds []float64, also ...float64) *Layout {
	l := &Layout{low: low, high: high, bounds: slices.Clone(bounds)}
	l.upper = append(append(l.upper, bounds...), also...)
	l.upper = append(l.upper, math.Inf(1))
	for i := low * perOctave; i <= high*perOctave; i++ {
		l.upper = append(l.upper, nativeBound(i))
	}
	slices.Sort(l.upper)
	l.upper = slices.Compact(l.upper)
	l.native = make([]int32, len(l.upper))
	index := low * perOctave
	for c, u := range l.upper {
		for index <= high*perOctave && u > nativeBound(index) {
			index++
		}
		l.native[c] = int32(index)
	}
	l.start = make([]uint16, (high-low)*slotsOctave)
	c := 0
	for s := range l.start {
		edge := math.Ldexp(1+float64(s%slotsOctave)/slotsOctave, low+s/slotsOctave)
		for l.upper[c] < edge {
			c++
		}
		l.start[s] = uint16(c)
	}
	return l
}

// nativeBound returns the upper bound of the native bucket with that index.
func nativeBound(index int) float64 {
	octave := index >> Schema
	return math.Ldexp(math.Exp2(float64(index&(perOctave-1))/perOctave), octave)
}

// Bounds returns the upper bounds of the classic buckets, without +Inf. They
// must not be changed.
func (l *Layout) Bounds() []float64 { return l.bounds }

// zeroBucket is the index for values too small for any other.
func (l *Layout) zeroBucket() int32 { return int32(l.low * perOctave) }

// cell returns the cell of v. The exponent and the first bits of the mantissa
// select a slot; from its first cell on there are few cells to try.
func (l *Layout) cell(v float64) int {
	bits := math.Float64bits(v)
	slot := int(bits>>(52-slotBits)) - (1023+l.low)<<slotBits
	c := 0
	switch {
	case bits>>63 != 0 || slot < 0:
	case slot < len(l.start):
		c = int(l.start[slot])
	default:
		c = int(l.start[len(l.start)-1])
	}
	for v > l.upper[c] {
		c++
	}
	return c
}
