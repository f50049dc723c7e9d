package result

import (
	"time"

	"shoal/internal/client"
)

// An Export is every request of a run with its answer.
type Export struct {
	Protocol string           // HTTP or GRPC: how answers are encoded
	Requests []client.Request // the different requests that were sent
	Levels   []ExportedLevel
}

// An ExportedLevel is a level of an Export.
type ExportedLevel struct {
	Load       Load
	Exchanges  []Exchange
	Boundaries []time.Time // where windows begin and end
}

// An Exchange is one request and its answer. Times are as load.Now returns
// them.
type Exchange struct {
	Message  int // which of the requests
	Sequence uint64
	At       time.Duration
	Arrivals []time.Duration
	Answer   []byte
}
