package result

import (
	"math"
	"slices"
	"time"

	"shoal/internal/load"
)

// WindowsJudged is how many windows must agree.
const WindowsJudged = 3

// LastWindows returns the windows that count: the last three after the warm-up,
// or fewer if there are fewer.
func LastWindows(windows []Window) []Window {
	for i := len(windows) - 1; i >= 0; i-- {
		if windows[i].WarmUp != "" && i+1 < len(windows) {
			windows = windows[i+1:]
			break
		}
	}
	return windows[max(0, len(windows)-WindowsJudged):]
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

// Merge adds up consecutive windows.
func Merge(windows []Window) *Window {
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
		w.CountError(cause, n)
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
	w.Parts = addParts(w.Parts, o.Parts)
	if o.GPU != nil {
		w.GPU = o.GPU.Merged(w.GPU)
	}
	w.Slices = append(w.Slices, o.Slices...)
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

// maxCauses bounds the distinct errors that are kept; texts with addresses or
// ids would otherwise fill the memory.
const (
	maxCauses  = 20
	otherCause = "other errors"
)

func (w *Window) CountError(cause string, n int64) {
	if w.Errors == nil {
		w.Errors = make(map[string]int64)
	}
	if _, known := w.Errors[cause]; !known && len(w.Errors) >= maxCauses {
		cause = otherCause
	}
	w.Errors[cause] += n
}

// Mean returns a sum divided by the answered requests.
func (w *Window) Mean(sum time.Duration) time.Duration {
	if w.Requests == 0 {
		return 0
	}
	return sum / time.Duration(w.Requests)
}

// Overhead returns the share of a closed loop's time in which its callers had
// no request in flight.
func (w *Window) Overhead(callers float64) float64 {
	total := float64(w.Duration) * callers
	if total <= 0 {
		return 0
	}
	return min(1, float64(w.Idle)/total)
}

// ClientShare returns the share of cpus that this process took.
func (w *Window) ClientShare(cpus int) float64 {
	if w.Duration <= 0 || cpus <= 0 {
		return 0
	}
	return float64(w.ClientCPU) / float64(w.Duration) / float64(cpus)
}

// FailedShare returns the share of requests that failed.
func (w *Window) FailedShare() float64 {
	if w.Failed == 0 {
		return 0
	}
	return float64(w.Failed) / float64(w.Failed+w.Requests)
}

// DelayedShare returns the share of requests that were sent late.
func (w *Window) DelayedShare() float64 {
	if w.Requests == 0 {
		return 0
	}
	return float64(w.Delayed) / float64(w.Requests)
}

// A Window is a part of a level. A request belongs to the window in which its
// answer was complete.
type Window struct {
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
	Requests int64         `json:"requests"` // answered well
	Rows     int64         `json:"rows"`     // Requests times the batch size
	// Responses is more than Requests when a model answers one request often.
	Responses int64 `json:"responses"`
	// Sequences is how many sequences of requests ended.
	Sequences int64 `json:"sequences,omitempty"`
	Failed    int64 `json:"failed"`
	// Errors counts the failures by their text.
	Errors map[string]int64 `json:"errors,omitempty"`

	// Latency ends with the answer. It begins when the request was sent, in an
	// open loop when it should have been sent, unless the plan's clock is "send".
	Latency *load.Histogram `json:"latency"`
	// FromSend is the latency from the sending on; only in open loops.
	// FromSchedule is that from when the request should have been sent; only
	// where Latency is not.
	FromSend     *load.Histogram `json:"latency_from_send,omitempty"`
	FromSchedule *load.Histogram `json:"latency_from_schedule,omitempty"`
	// SendLag is how late requests were sent; only in open loops.
	SendLag *load.Histogram `json:"send_lag,omitempty"`
	// Delayed is how many were sent more than a millisecond late.
	Delayed int64 `json:"delayed,omitempty"`

	// Send, Wait and Receive are the parts of an answered request at the client,
	// summed over all of them: until it was written, until the answer began,
	// until it was complete.
	Send    time.Duration `json:"send_ns"`
	Wait    time.Duration `json:"wait_ns"`
	Receive time.Duration `json:"receive_ns"`
	// Idle is how long callers of a closed loop had no request in flight, in
	// total.
	Idle time.Duration `json:"idle_ns"`
	// MaxInFlight is the most requests that were under way at once; open loops.
	MaxInFlight int `json:"max_in_flight,omitempty"`

	// ClientCPU and ServerCPU are the CPU time of this process and of the
	// server's; the latter is 0 when it is not known.
	ClientCPU time.Duration `json:"client_cpu_ns"`
	ServerCPU time.Duration `json:"server_cpu_ns,omitempty"`

	// Server is the server's statistics of this window; nil when there are
	// none.
	Server *ServerStats `json:"server,omitempty"`
	// Parts are those of the models that the measured model calls.
	Parts []PartStats `json:"composing_models,omitempty"`
	// GPU has the server's GPU metrics when they were asked for; nil otherwise.
	GPU *GPUMetrics `json:"gpu,omitempty"`

	// WarmUp is why the window does not count: its beginning was unlike the
	// rest of it. Empty when it counts.
	WarmUp string `json:"warm_up,omitempty"`

	Slices []Slice `json:"-"` // its moments, for intervals
}

// A Tick is a tenth of a second of a level's timeline.
type Tick struct {
	At       time.Duration `json:"at_ns"` // since the start of the level's first window
	Requests int64         `json:"requests"`
	Failed   int64         `json:"failed,omitempty"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Max      time.Duration `json:"max_ns"`
}

// Throughput returns the rows answered each second, which is what perf_analyzer
// calls infer/sec.
func (w *Window) Throughput() float64 { return PerSecond(w.Rows, w.Duration) }

// RequestRate returns the requests answered each second.
func (w *Window) RequestRate() float64 { return PerSecond(w.Requests, w.Duration) }

func PerSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
