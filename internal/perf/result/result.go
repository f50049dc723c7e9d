package result

import (
	"encoding/json"
	"fmt"
	"time"
)

// Format is raised when an older reader would misunderstand the file. New
// fields alone do not raise it.
const Format = 1

// A Result is one run of perf: every level, every window, every figure, so that
// reports, comparisons and pictures can be made from it later. Times are in
// nanoseconds where their name says so. Histograms are written without loss and
// may be merged.
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
	// Cut is why the run ended early; empty when it did not.
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

// A Plan is how the run was to measure.
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
	// Ranged means that more than one level was asked for.
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

// A Level is the result of one load.
type Level struct {
	Load Load `json:"load"`
	// Stable means that the last three windows agreed. Otherwise Reason says
	// why they did not, or what ended the level.
	Stable bool   `json:"stable"`
	Reason string `json:"reason,omitempty"`
	// OverLimit means that the latency exceeded the plan's limit; perf_analyzer
	// leaves such levels out of its report.
	OverLimit bool     `json:"over_limit,omitempty"`
	Windows   []Window `json:"windows"`
	// Merged is the sum of the windows that count: the last three, or fewer if
	// there are fewer. It is nil when no window ended.
	Merged *Window `json:"merged"`
	// Spread is how far apart the windows that count are: highest divided by
	// lowest, minus one.
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

// Judged returns the latency that the plan judges by: a percentile or the mean.
func (p *Plan) Judged(w *Window) time.Duration {
	if p.Percentile > 0 {
		return w.Latency.Quantile(float64(p.Percentile) / 100)
	}
	return w.Latency.Mean()
}

// CutShort is the reason of a level that was ended before it was stable.
const CutShort = "cut short"

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

// Parse reads a result that was written as JSON.
func Parse(data []byte) (*Result, error) {
	r := &Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("not a result of perf: %w", err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("a result of format %d; this version reads format %d", r.Format, Format)
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
