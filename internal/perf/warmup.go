package perf

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// warmShare is by how much a cold beginning must move a window's figures for
	// the window to be left out.
	warmShare = 0.01
	// warmSlices is how many slices a window needs for its beginning to be told
	// from the rest.
	warmSlices = 10
)

// warming says why the window just measured is warm-up and does not count; empty
// when it does. Only windows at the beginning can be, and only while the plan
// allows as many more as are judged.
func (s *Session) warming(l *Level, trial int, w *Window) string {
	if s.settings.Plan.RequestCount > 0 || trial+windowsJudged > s.settings.Plan.MaxTrials {
		return ""
	}
	if trial > 1 && l.Windows[trial-2].WarmUp == "" {
		return ""
	}
	return warmUp(w.slices)
}

// warmUp finds a beginning that is slower than the rest, whose second half is
// taken for what is normal: slices from the first on that are all beyond what the
// normal ones reach, and together weigh enough to matter. It returns a sentence
// about it; empty when there is none.
func warmUp(list []slice) string {
	if len(list) < warmSlices {
		return ""
	}
	rate, latency := series(list)
	cold := max(beginning(latency, 1), fewer(list, rate))
	if cold == 0 {
		return ""
	}
	all, rest := total(list), total(list[cold:])
	if !(all.mean()/rest.mean()-1 > warmShare || 1-all.rate()/rest.rate() > warmShare) {
		return ""
	}
	first := total(list[:cold])
	text := fmt.Sprintf("its first %v were not like the rest", first.length.Round(10*time.Millisecond))
	if first.requests > 0 {
		text += fmt.Sprintf(": latency %.2gx, throughput %.2gx", first.mean()/rest.mean(), first.rate()/rest.rate())
	}
	return text
}

// fewer returns how many slices from the first on have fewer answers than is
// normal, unless it is only that no request can be answered before it has taken
// its time.
func fewer(list []slice, rate []float64) int {
	cold := beginning(rate, -1)
	first, rest := total(list[:cold]), total(list[cold:])
	if float64(first.length) <= 2*rest.mean()+float64(2*tickLength) {
		return 0
	}
	return cold
}

// series returns the throughput and the mean latency of each slice. One without
// answers has the latency of the slice before it.
func series(list []slice) (rate, latency []float64) {
	last := 0.0
	for i := range list {
		if list[i].requests > 0 {
			last = list[i].mean()
		}
		rate, latency = append(rate, list[i].rate()), append(latency, last)
	}
	return rate, latency
}

// beginning returns how many values from the first on lie beyond the normal, on
// the side that direction says.
func beginning(values []float64, direction float64) int {
	normal := slices.Sorted(slices.Values(values[len(values)/2:]))
	median := normal[len(normal)/2]
	away := make([]float64, len(normal))
	for i, v := range normal {
		away[i] = math.Abs(v - median)
	}
	slices.Sort(away)
	// Five times what a normal distribution would call its deviation, and never
	// less than a tenth: a steady server's smallest wobble is no warm-up.
	reach := max(5*1.48*away[len(away)/2], 0.1*median)
	for i, v := range values[:len(values)/2] {
		if direction*(v-median) <= reach {
			return i
		}
	}
	return len(values) / 2
}

// total joins slices, without their latencies apart.
func total(list []slice) slice {
	var t slice
	for i := range list {
		t.length += list[i].length
		t.requests += list[i].requests
		t.rows += list[i].rows
		t.sum += list[i].sum
	}
	return t
}

func (s *slice) rate() float64 { return perSecond(s.rows, s.length) }

func (s *slice) mean() float64 { return s.sum / float64(max(1, s.requests)) }
