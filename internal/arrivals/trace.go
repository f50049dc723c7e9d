// Package arrivals records when requests arrive and how large they are: a trace
// file, and the tap through which a running server writes one. perf replays traces,
// so that a server can be measured with its real traffic.
//
// A trace is JSON, one object per line. The first line names the format:
//
//	{"format":"shoal-arrivals","version":1,"started":"2026-01-31T12:00:00Z"}
//
// Each further line is a request: when it arrived, in nanoseconds since the start,
// for which model, and its inputs with their full shapes (with the batch dimension)
// and their size in bytes. Only the time is required.
//
//	{"at_ns":1250000,"model":"resnet","version":"1","inputs":[{"name":"x","shape":[2,3,224,224],"bytes":1204224}]}
//
// A line {"dropped":12} says that 12 requests before it were not recorded. Lines may
// be in any order. Other fields are ignored. A plain file of times is read as well:
// a number of seconds or an RFC 3339 time on each line.
package arrivals

import (
	"slices"
	"time"
)

// A Trace is a list of requests in the order of their arrival.
type Trace struct {
	Started  time.Time // zero when unknown
	Arrivals []Arrival
	// Kinds are the distinct requests; arrivals refer to them.
	Kinds []Kind
	// Dropped is how many requests were not recorded.
	Dropped int64
}

// An Arrival is one request.
type Arrival struct {
	At   time.Duration // since the start of the trace
	Kind int
}

// A Kind is what similar requests have in common.
type Kind struct {
	Model   string  `json:"model,omitempty"` // empty: unknown
	Version string  `json:"version,omitempty"`
	Inputs  []Input `json:"inputs,omitempty"` // none: unknown
}

// An Input is the shape and the size of a tensor.
type Input struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes,omitempty"` // 0: unknown
}

// Of returns the arrivals for a model, and those that name no model. The kinds
// stay.
func (t *Trace) Of(model string) *Trace {
	part := *t
	part.Arrivals = nil
	for _, a := range t.Arrivals {
		if name := t.Kinds[a.Kind].Model; name == "" || name == model {
			part.Arrivals = append(part.Arrivals, a)
		}
	}
	return &part
}

// Models returns the models that the trace names, each once.
func (t *Trace) Models() []string {
	var names []string
	for _, k := range t.Kinds {
		if k.Model != "" && !slices.Contains(names, k.Model) {
			names = append(names, k.Model)
		}
	}
	return names
}

// Gaps returns the times from each arrival to the next, divided by speed: one
// less than there are arrivals.
func (t *Trace) Gaps(speed float64) []time.Duration {
	if len(t.Arrivals) == 0 {
		return nil
	}
	first := t.Arrivals[0].At
	at := func(i int) time.Duration { return time.Duration(float64(t.Arrivals[i].At-first) / speed) }
	gaps := make([]time.Duration, len(t.Arrivals)-1)
	for i := range gaps {
		gaps[i] = at(i+1) - at(i)
	}
	return gaps
}
