// Package engine is the whole server as a Go API, without a socket: it loads
// the models of the repositories, checks and runs requests, and reports what is
// loaded and its statistics. Start returns a running engine that the caller
// must Close; every method may be called from many goroutines.
package engine

import (
	"time"

	"shoal/internal/backend"
	"shoal/internal/histogram"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// A State is where a version is in its life. A version that is loaded again
// while it is ready stays ready: the new one takes its place in one step.
//
//	loading → ready → draining → unavailable (unloaded)
//	loading → unavailable (failed)
//	unavailable → loading
type State string

// The states, by their names on the wire.
const (
	StateLoading     State = "LOADING"
	StateReady       State = "READY"
	StateDraining    State = "UNLOADING"   // accepts no new requests; some still hold a lease
	StateUnavailable State = "UNAVAILABLE" // failed, unloaded or in trouble: the reason says which
)

// NoVersion is the version of a model without one in an index.
const NoVersion = -1

// An IndexEntry is one line of the repository's index. A ready version has a
// reason when it could not be replaced by what is on the disk now.
type IndexEntry struct {
	Name    string
	Version int64 // NoVersion when none of the model's was tried
	State   State // empty when the model was never loaded
	Reason  string
}

// Metadata is a model's description for clients, without its configuration.
type Metadata struct {
	Name     string
	Versions []int64 // ascending
	Platform string
	Inputs   []model.Tensor // Full is the shape to show
	Outputs  []model.Tensor
}

// A Duration is a number of events and their total time.
type Duration struct {
	Count uint64
	Ns    uint64
}

// Statistics are the counters of one version since it was loaded.
type Statistics struct {
	Name           string
	Namespace      string // empty when there are none
	Version        int64
	LastInference  uint64 // milliseconds since 1970, 0 when there was none
	InferenceCount uint64 // rows
	ExecutionCount uint64

	Success, Fail                             Duration
	Queue                                     Duration
	ComputeInput, ComputeInfer, ComputeOutput Duration
	CacheHit, CacheMiss                       Duration
	Cached                                    bool              // the model's responses are kept in the cache
	Failures                                  map[string]uint64 // by reason: REJECTED, CANCELED, BACKEND, OTHER
	Pending                                   int64             // requests that wait for an instance
	Batches                                   []BatchStatistics // by rising size
	Responses                                 []ResponseStatistics
	Config                                    *modelpb.ModelConfig

	// Refused counts the requests that the scheduler refused because the queue
	// was full or closed. They are in none of the other counters.
	Refused uint64
	// Formed counts the batches that an instance ran, by the reason for their
	// start.
	Formed [infer.ReasonCount]uint64

	Instances, Busy int
	BusyTime        time.Duration    // how long instances have run batches, in sum
	Workers         []backend.Worker // the processes behind the instances, if they have any
	GPUs            []backend.GPUUse // that instances run on, by their numbers
	LoadDuration    time.Duration
	Loaded          time.Time // when it became ready; a new time means new counters

	Distributions
}

// Distributions are the distributions of the values behind some counters.
// Durations are in seconds and of successful requests.
type Distributions struct {
	RequestTime, QueueTime histogram.Snapshot
	BatchRows              histogram.Snapshot // of every batch that an instance ran
	// FirstResponse are the additional bounds, in milliseconds, of
	// FirstResponseTime. Ordinary models have one response to a request, so it
	// is their RequestTime.
	FirstResponse     []float64
	FirstResponseTime histogram.Snapshot
	// The times of the parts of an execution, for each request; empty unless
	// Options.ComputeTimes.
	InputTime, InferTime, OutputTime histogram.Snapshot
	// CacheHitTime and CacheMissTime are those of the cache, likewise.
	CacheHitTime, CacheMissTime histogram.Snapshot
}

// BatchStatistics are the executions of one size.
type BatchStatistics struct {
	Size                                      int
	ComputeInput, ComputeInfer, ComputeOutput Duration
}

// ResponseStatistics are the statistics of a decoupled model's responses by
// their position in the request's responses, which is the index in
// Statistics.Responses. The last one includes all later positions.
type ResponseStatistics struct {
	ComputeInfer, ComputeOutput          Duration
	Success, Fail, EmptyResponse, Cancel Duration
}
