package infer

import "time"

// A Batch is the requests that an instance runs together. It belongs to the
// scheduler; an instance may use it during Run only.
type Batch struct {
	Requests []*Request
	Rows     int // the sum of the requests' rows
	Reason   Reason
	Times    Times
	// Turn is nil but for an instance that is given batches while it runs another.
	Turn Turn
}

// A Turn is a batch's place among those that an instance has been given. The
// scheduler makes it.
type Turn interface {
	// Await returns when the batches that were given before have run. An
	// instance calls it once it has the inputs ready.
	Await()
}

// A Reason says why a batch went when it did.
type Reason uint8

// The reasons.
const (
	ReasonIdle      Reason = iota // nobody asked it to wait
	ReasonPreferred               // it had a preferred size, or the next request would pass the largest such
	ReasonFull                    // it had the model's most rows, or the next request could not join it
	ReasonDelay                   // its oldest request had waited long enough
	ReasonCount                   // the number of reasons
)

var reasonNames = [ReasonCount]string{"idle", "preferred", "full", "delay"}

// String returns the reason's name in metrics.
func (r Reason) String() string { return reasonNames[r] }

// Times are the points in an execution that statistics are made of. The
// scheduler sets Start and End, the instance the two between, unless no request
// was fit to run.
type Times struct {
	Start       time.Time // the instance has the batch, and no other
	InputsReady time.Time // the inputs are gathered
	OutputsOut  time.Time // the model has run; outputs are being handed out
	End         time.Time
}
