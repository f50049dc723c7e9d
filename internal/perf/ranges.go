package perf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Range is the levels of a run: from Start to End by Step.
type Range struct {
	Start, End, Step float64
	// Single means that no end was given: there is one level.
	Single bool
}

// Unbounded reports whether the levels go on until the latency exceeds its
// limit.
func (r Range) Unbounded() bool { return !r.Single && r.End == 0 }

// most returns the highest level that is known beforehand.
func (r Range) most() float64 {
	if r.Single {
		return r.Start
	}
	return max(r.Start, r.End)
}

// ParseRange reads start[:end[:step]]. An end of 0 means none. Whole asks for
// whole numbers.
func ParseRange(text string, whole bool) (Range, error) {
	parts := strings.Split(text, ":")
	if len(parts) > 3 {
		return Range{}, fmt.Errorf("%q has more than start:end:step", text)
	}
	values := [3]float64{1, 1, 1}
	for i, part := range parts {
		v, err := parseLevel(part, whole)
		if err != nil {
			return Range{}, fmt.Errorf("%q is not a range of start:end:step: %w", text, err)
		}
		values[i] = v
	}
	r := Range{Start: values[0], End: values[1], Step: values[2], Single: len(parts) == 1}
	switch {
	case r.Start <= 0:
		return Range{}, fmt.Errorf("%q starts at %s, want more than 0", text, parts[0])
	case r.Step <= 0:
		return Range{}, fmt.Errorf("%q has the step %s, want more than 0", text, parts[2])
	case r.Single:
		r.End = r.Start
	case r.End != 0 && r.End < r.Start:
		return Range{}, fmt.Errorf("%q ends below its start; an end of 0 means none", text)
	}
	return r, nil
}

// maxLevel is more than any machine can do, and small enough to count.
const maxLevel = 1e9

func parseLevel(text string, whole bool) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if whole && err == nil && v != math.Trunc(v) {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	if err != nil || !(v >= 0 && v <= maxLevel) { // or NaN
		return 0, fmt.Errorf("%q is not a number from 0 to %.0e", text, maxLevel)
	}
	return v, nil
}

// A search chooses the levels of a run, one after the other.
type search struct {
	levels Range
	binary bool

	measured int
	last     float64
	low      float64 // binary: the highest level known to pass
	high     float64 // binary: the lowest level known to fail
}

// next returns the level to measure after the last one, which passed or was over
// the latency limit. It returns false when there is none.
func (s *search) next(passed bool) (float64, bool) {
	v, ok := s.choose(passed)
	s.measured++
	s.last = v
	return v, ok
}

func (s *search) choose(passed bool) (float64, bool) {
	r := s.levels
	switch {
	case s.measured == 0:
		return r.Start, true
	case r.Single, s.measured == 1 && !passed:
		return 0, false
	case s.binary:
		return s.halve(passed)
	case !passed:
		return 0, false
	}
	// Multiplied rather than added up, so that a step of 0.1 does not drift.
	v := r.Start + float64(s.measured)*r.Step
	return v, r.Unbounded() || v <= r.End*(1+1e-9)
}

// halve looks between the highest level that passed and the lowest that did
// not, until they are at most one step apart.
func (s *search) halve(passed bool) (float64, bool) {
	if s.measured == 1 {
		s.low = s.last
		return s.levels.End, s.levels.End > s.levels.Start
	}
	if passed && s.measured == 2 {
		return 0, false // the end of the range passed
	}
	if passed {
		s.low = s.last
	} else {
		s.high = s.last
	}
	if s.high-s.low <= s.levels.Step {
		return 0, false
	}
	middle := (s.low + s.high) / 2
	if s.levels.Step == math.Trunc(s.levels.Step) && s.low == math.Trunc(s.low) && s.high == math.Trunc(s.high) {
		middle = math.Trunc(middle)
	}
	return middle, true
}

// Count returns how many levels a range has; 0 when that is not known beforehand.
func (r Range) Count() int {
	switch {
	case r.Single:
		return 1
	case r.Unbounded() || !(r.Step > 0):
		return 0
	}
	return int(math.Floor((r.End*(1+1e-9)-r.Start)/r.Step)) + 1
}

// Levels returns how many levels a run will have; 0 when that is not known
// beforehand.
func (s *Settings) Levels() int {
	if s.Plan.BinarySearch || len(s.Capacity) > 0 {
		return 0
	}
	return s.Range.Count()
}

// RateOf returns the single level of a schedule with these gaps: their mean rate.
func RateOf(gaps []time.Duration) Range {
	var sum time.Duration
	for _, g := range gaps {
		sum += g
	}
	r := float64(len(gaps)) / sum.Seconds()
	return Range{Start: r, End: r, Step: 1, Single: true}
}
