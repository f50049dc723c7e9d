package perf

import (
	"fmt"
	"math"
	"slices"
	"time"

	"shoal/internal/load"
)

// windowsJudged is how many windows must agree.
const windowsJudged = 3

// counted returns the windows that count: the last three after the warm-up, or
// what there is.
func counted(windows []Window) []Window {
	for i := len(windows) - 1; i >= 0; i-- {
		if windows[i].WarmUp != "" && i+1 < len(windows) {
			windows = windows[i+1:]
			break
		}
	}
	return windows[max(0, len(windows)-windowsJudged):]
}

// A verdict is what the windows of a level say so far.
type verdict struct {
	stable     bool
	throughput bool // it alone is stable
	over       bool // the latency went over the limit
	spread     Spread
	reason     string // why not stable
}

// judge compares the windows that count.
func judge(p *Plan, windows []Window) verdict {
	last := counted(windows)
	var throughput, latency []float64
	v := verdict{}
	for i := range last {
		throughput = append(throughput, last[i].Throughput())
		judged := p.Judged(&last[i])
		latency = append(latency, float64(judged))
		v.over = v.over || p.LatencyLimit > 0 && judged >= p.LatencyLimit
	}
	v.spread = Spread{Throughput: spread(throughput), Latency: spread(latency)}
	if len(last) < windowsJudged {
		v.over = false // too early to say
		v.reason = fmt.Sprintf("%d of %d windows", len(last), windowsJudged)
		return v
	}
	v.throughput = v.spread.Throughput <= p.Stability
	v.stable = v.throughput && v.spread.Latency <= p.Stability
	switch {
	case slices.Min(throughput) == 0:
		v.stable, v.throughput = false, false
		v.reason = "a window without answers"
	case !v.throughput:
		v.reason = fmt.Sprintf("throughput spread %s", percent(v.spread.Throughput))
	case !v.stable:
		v.reason = fmt.Sprintf("latency spread %s", percent(v.spread.Latency))
	}
	return v
}

// spread returns by how much the highest value is above the lowest.
func spread(values []float64) float64 {
	if len(values) == 0 || slices.Max(values) == 0 {
		return 0
	}
	low := slices.Min(values)
	if low == 0 {
		return math.MaxFloat64 // JSON has no infinity
	}
	return slices.Max(values)/low - 1
}

func percent(v float64) string {
	if v > 99 {
		return "over 9900%"
	}
	return fmt.Sprintf("%.3g%%", 100*v)
}

// merge adds windows that follow one another up.
func merge(windows []Window) *Window {
	if len(windows) == 0 {
		return nil
	}
	m := &Window{Start: windows[0].Start, Latency: &load.Histogram{}}
	for i := range windows {
		m.add(&windows[i])
	}
	return m
}

func (w *Window) add(o *Window) {
	w.Duration += o.Duration
	w.Requests += o.Requests
	w.Rows += o.Rows
	w.Responses += o.Responses
	w.Sequences += o.Sequences
	w.Failed += o.Failed
	for cause, n := range o.Errors {
		w.countError(cause, n)
	}
	w.Latency.Merge(o.Latency)
	mergeInto(&w.FromSend, o.FromSend)
	mergeInto(&w.FromSchedule, o.FromSchedule)
	mergeInto(&w.SendLag, o.SendLag)
	w.Delayed += o.Delayed
	w.Send += o.Send
	w.Wait += o.Wait
	w.Receive += o.Receive
	w.Idle += o.Idle
	w.MaxInFlight = max(w.MaxInFlight, o.MaxInFlight)
	w.ClientCPU += o.ClientCPU
	w.ServerCPU += o.ServerCPU
	if o.Server != nil {
		if w.Server == nil {
			w.Server = &ServerStats{}
		}
		w.Server.add(o.Server)
	}
	if o.GPU != nil {
		w.GPU = o.GPU.merged(w.GPU)
	}
	w.slices = append(w.slices, o.slices...)
}

func mergeInto(h **load.Histogram, o *load.Histogram) {
	if o == nil {
		return
	}
	if *h == nil {
		*h = &load.Histogram{}
	}
	(*h).Merge(o)
}

// maxCauses bounds the distinct errors that are kept apart; texts with addresses
// or ids in them would otherwise fill the memory.
const (
	maxCauses  = 20
	otherCause = "other errors"
)

func (w *Window) countError(cause string, n int64) {
	if w.Errors == nil {
		w.Errors = make(map[string]int64)
	}
	if _, known := w.Errors[cause]; !known && len(w.Errors) >= maxCauses {
		cause = otherCause
	}
	w.Errors[cause] += n
}

// mean returns a sum divided by the answered requests.
func (w *Window) mean(sum time.Duration) time.Duration {
	if w.Requests == 0 {
		return 0
	}
	return sum / time.Duration(w.Requests)
}
