package result

import (
	"strings"
)

// The modes of measurement, as a Plan names them.
const (
	TimeWindows  = "time_windows"
	CountWindows = "count_windows"
	RequestCount = "request_count"
)

// The clocks of an open loop's latency, as a Plan names them.
const (
	ScheduleClock = "schedule"
	SendClock     = "send"
)

// The protocols, as a Target names them.
const (
	HTTP = "http"
	GRPC = "grpc"
)

// The distributions of an open loop.
const (
	Constant = "constant"
	Poisson  = "poisson"
	File     = "file"
	Replay   = "replay" // requests come as they did in a trace
)

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

// Open reports whether requests are sent by a schedule, whatever the server
// does.
func (l Load) Open() bool { return l.Mode != Concurrency && l.Mode != Periodic }

// Name returns the kind of load as reports write it.
func (l Load) Name() string {
	if l.Open() {
		return "Request Rate"
	}
	return "Concurrency"
}

// String returns the load in a few words, such as "concurrency 4".
func (l Load) String() string { return strings.ToLower(l.Name()) + " " + Number(l.Value) }
