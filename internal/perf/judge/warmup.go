package judge

import (
	"fmt"
	"math"
	"slices"
	"time"

	"shoal/internal/perf/result"
)

const (
	// warmShare is by how much a cold beginning must move a window's figures for
	// the window to be left out.
	warmShare = 0.01
	// warmSlices is how many slices a window needs to recognise a cold
	// beginning.
	warmSlices = 10
)

// WarmUp returns why window w, which follows those before it, is warm-up and
// does not count; empty when it counts. Only windows at the beginning can be
// warm-up, and only while the plan allows enough further windows for a verdict.
func WarmUp(p *result.Plan, before []result.Window, w *result.Window) string {
	n := len(before)
	if p.RequestCount > 0 || n+1+result.WindowsJudged > p.MaxTrials || n > 0 && before[n-1].WarmUp == "" {
		return ""
	}
	return warmUp(w.Slices)
}

// warmUp finds a slow beginning. The second half of the window is taken as
// normal. The beginning is the first slices that are all outside the range of
// the normal ones; it must be long enough to matter. It returns a sentence
// about it; empty when there is none.
func warmUp(list []result.Slice) string {
	if len(list) < warmSlices {
		return ""
	}
	rate, latency := series(list)
	cold := max(beginning(latency, 1), fewer(list, rate))
	if cold == 0 {
		return ""
	}
	all, rest := total(list), total(list[cold:])
	if !(all.Mean()/rest.Mean()-1 > warmShare || 1-all.Rate()/rest.Rate() > warmShare) {
		return ""
	}
	first := total(list[:cold])
	text := fmt.Sprintf("its first %v were not like the rest", first.Length.Round(10*time.Millisecond))
	if first.Requests > 0 {
		text += fmt.Sprintf(": latency %.2gx, throughput %.2gx", first.Mean()/rest.Mean(), first.Rate()/rest.Rate())
	}
	return text
}

// fewer returns how many slices from the first on have fewer answers than
// normal, unless the only reason is that the first answers take their time.
func fewer(list []result.Slice, rate []float64) int {
	cold := beginning(rate, -1)
	first, rest := total(list[:cold]), total(list[cold:])
	if float64(first.Length) <= 2*rest.Mean()+float64(2*result.TickLength) {
		return 0
	}
	return cold
}

// series returns the throughput and the mean latency of each slice. A slice
// without answers gets the latency of the slice before it.
func series(list []result.Slice) (rate, latency []float64) {
	last := 0.0
	for i := range list {
		if list[i].Requests > 0 {
			last = list[i].Mean()
		}
		rate, latency = append(rate, list[i].Rate()), append(latency, last)
	}
	return rate, latency
}

// beginning returns how many values from the first on are outside the normal
// range, on the side that direction gives.
func beginning(values []float64, direction float64) int {
	normal := slices.Sorted(slices.Values(values[len(values)/2:]))
	median := normal[len(normal)/2]
	away := make([]float64, len(normal))
	for i, v := range normal {
		away[i] = math.Abs(v - median)
	}
	slices.Sort(away)
	// Five times the deviation of a normal distribution, and never less than a
	// tenth: a steady server's smallest variation is no warm-up.
	reach := max(5*1.48*away[len(away)/2], 0.1*median)
	for i, v := range values[:len(values)/2] {
		if direction*(v-median) <= reach {
			return i
		}
	}
	return len(values) / 2
}

// total joins slices without their latency bins.
func total(list []result.Slice) result.Slice {
	var t result.Slice
	for i := range list {
		t.Length += list[i].Length
		t.Requests += list[i].Requests
		t.Rows += list[i].Rows
		t.Sum += list[i].Sum
	}
	return t
}
