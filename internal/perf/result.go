package perf

import (
	"encoding/json"
	"fmt"
	"time"

	"shoal/internal/load"
)

// resultFormat is raised when an older reader would misunderstand what is
// written. New fields alone do not raise it.
const resultFormat = 1

// A Result is one run of perf: every level, every window, every figure, so that
// reports, comparisons and pictures can be made from it later. Times are in
// nanoseconds where their name says so. Histograms lose nothing when they are
// written down and may be merged.
type Result struct {
	Format  int       `json:"format"` // 1
	Tool    string    `json:"tool"`   // name and version of what measured
	Command []string  `json:"command,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Host    Host      `json:"host"`
	Target  Target    `json:"target"`
	Plan    Plan      `json:"plan"`
	Levels  []Level   `json:"levels"` // in the order in which they were measured
	// Capacity is what a search for the highest rate found; nil when none was
	// asked for.
	Capacity *Capacity `json:"capacity,omitempty"`
	// Cut says why the run ended before its plan did; empty when it did not.
	Cut string `json:"cut,omitempty"`
	// Warnings are about the whole run; each is a sentence.
	Warnings []string `json:"warnings,omitempty"`
}

// A Host is the machine that made the load.
type Host struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu,omitempty"`
	CPUs int    `json:"cpus"` // that this process may use
}

// A Target is what was measured.
type Target struct {
	URL       string `json:"url"`
	Protocol  string `json:"protocol"` // "http" or "grpc"
	Streaming bool   `json:"streaming,omitempty"`
	Model     string `json:"model"`
	Version   string `json:"version,omitempty"` // empty: the newest
	Server    string `json:"server,omitempty"`  // the server's name and version
	// MaxBatch is the model's max_batch_size.
	MaxBatch int `json:"max_batch_size"`
	// ServerPID is the server's process when it runs on this machine.
	ServerPID int `json:"server_pid,omitempty"`
}

// A Plan says how the run was to measure.
type Plan struct {
	BatchSize int    `json:"batch_size"`
	Mode      string `json:"measurement_mode"` // "time_windows", "count_windows" or "request_count"
	// Window is the length of a time window as asked for; it lasts 1.2 times as
	// long, as perf_analyzer's do.
	Window       time.Duration `json:"measurement_interval_ns,omitempty"`
	WindowCount  int64         `json:"measurement_request_count,omitempty"`
	RequestCount int64         `json:"request_count,omitempty"`
	Warmup       int64         `json:"warmup_request_count,omitempty"`
	Stability    float64       `json:"stability"` // 0.1 means 10 %
	MaxTrials    int           `json:"max_trials"`
	// Percentile is the latency that is judged and summed up; 0 means the mean.
	Percentile   int           `json:"percentile,omitempty"`
	LatencyLimit time.Duration `json:"latency_limit_ns,omitempty"`
	Async        bool          `json:"async,omitempty"`
	BinarySearch bool          `json:"binary_search,omitempty"`
	// Limit is the end of the range of levels; 0 means that the latency ends it.
	Limit float64 `json:"limit,omitempty"`
	// Ranged says that more than one level was asked for.
	Ranged bool `json:"ranged,omitempty"`
	// MaxOutstanding bounds the requests in flight of an open loop.
	MaxOutstanding int `json:"max_outstanding,omitempty"`
	// MaxErrors is the share of requests that may fail before the run is given up.
	MaxErrors float64 `json:"max_error_rate"`
	// Replay is the trace that was replayed, ReplaySpeed how fast; 2 is twice as
	// fast as it was.
	Replay      string  `json:"replay,omitempty"`
	ReplaySpeed float64 `json:"replay_speed,omitempty"`
	// LatencyClock is "schedule" or "send": where the latency of an open loop
	// begins.
	LatencyClock string `json:"latency_clock,omitempty"`
}

// The modes of a Load.
const (
	Concurrency = "concurrency"  // a closed loop of Value callers
	RequestRate = "request_rate" // an open loop of Value requests a second
	Intervals   = "intervals"    // an open loop with given gaps; Value is their mean rate
	Periodic    = "periodic"     // requests that are joined by more until there are Value
)

// A Load is what one level asked of the server.
type Load struct {
	Mode         string  `json:"mode"`
	Value        float64 `json:"value"`
	Distribution string  `json:"distribution,omitempty"` // open loops: "constant", "poisson" or "file"
}

// Open says whether requests are sent by a schedule, whatever the server does.
func (l Load) Open() bool { return l.Mode != Concurrency && l.Mode != Periodic }

// A Level is what one load came to.
type Level struct {
	Load Load `json:"load"`
	// Stable says that the last three windows agreed. When it is false Reason
	// says what did not, or what ended the level.
	Stable bool   `json:"stable"`
	Reason string `json:"reason,omitempty"`
	// OverLimit says that the latency went over the plan's limit; perf_analyzer
	// leaves such levels out of its report.
	OverLimit bool     `json:"over_limit,omitempty"`
	Windows   []Window `json:"windows"`
	// Merged is the windows that count, added up: the last three, or what there
	// was. It is nil when no window ended.
	Merged *Window `json:"merged"`
	// Spread is how far the windows that count are from each other: highest by
	// lowest, less one.
	Spread Spread `json:"spread"`
	// Goals says which of the goals were reached.
	Goals []GoalResult `json:"slo,omitempty"`
	// Figures are the merged windows' throughput and latencies with intervals.
	Figures []Figure `json:"figures,omitempty"`
	// Timeline has a tick for each tenth of a second of the whole level.
	Timeline []Tick `json:"timeline,omitempty"`
	// Warnings are about this level; each is a sentence.
	Warnings []string `json:"warnings,omitempty"`
}

// A Spread compares windows: 0.1 means that the highest is 10 % above the lowest.
type Spread struct {
	Throughput float64 `json:"throughput"`
	Latency    float64 `json:"latency"`
}

// A Window is a stretch of a level. A request belongs to the window in which its
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
	// Errors counts the failures by what was said of them.
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
	// Idle is how long callers of a closed loop had nothing under way, together.
	Idle time.Duration `json:"idle_ns"`
	// MaxInFlight is the most requests that were under way at once; open loops.
	MaxInFlight int `json:"max_in_flight,omitempty"`

	// ClientCPU and ServerCPU are the CPU time of this process and of the
	// server's; the latter is 0 when it is not known.
	ClientCPU time.Duration `json:"client_cpu_ns"`
	ServerCPU time.Duration `json:"server_cpu_ns,omitempty"`

	// Server is what the server says of this time; nil when it does not.
	Server *ServerStats `json:"server,omitempty"`
	// GPU has the server's GPU metrics when they were asked for; nil otherwise.
	GPU *GPUMetrics `json:"gpu,omitempty"`

	// WarmUp says why the window does not count: its beginning was unlike the
	// rest of it. Empty when it counts.
	WarmUp string `json:"warm_up,omitempty"`

	slices []slice // its moments, for intervals
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
func (w *Window) Throughput() float64 { return perSecond(w.Rows, w.Duration) }

// RequestRate returns the requests answered each second.
func (w *Window) RequestRate() float64 { return perSecond(w.Requests, w.Duration) }

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Judged returns the latency that the plan judges by: a percentile or the mean.
func (p *Plan) Judged(w *Window) time.Duration {
	if p.Percentile > 0 {
		return w.Latency.Quantile(float64(p.Percentile) / 100)
	}
	return w.Latency.Mean()
}

// Reported returns the levels that a report shows: those with answers whose
// latency stayed under the limit.
func (r *Result) Reported() []*Level {
	var list []*Level
	for i := range r.Levels {
		if l := &r.Levels[i]; !l.OverLimit && l.Merged != nil && l.Merged.Requests > 0 {
			list = append(list, l)
		}
	}
	return list
}

// ParseResult reads a result that was written as JSON.
func ParseResult(data []byte) (*Result, error) {
	r := &Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("not a result of perf: %w", err)
	}
	if r.Format != resultFormat {
		return nil, fmt.Errorf("a result of format %d; this version reads format %d", r.Format, resultFormat)
	}
	for i := range r.Levels {
		l := &r.Levels[i]
		if l.Merged != nil && l.Merged.Latency == nil {
			return nil, fmt.Errorf("level %d has no latency histogram", i+1)
		}
		for j := range l.Windows {
			if l.Windows[j].Latency == nil {
				return nil, fmt.Errorf("window %d of level %d has no latency histogram", j+1, i+1)
			}
		}
	}
	return r, nil
}
