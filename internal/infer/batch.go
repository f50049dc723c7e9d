package infer

import "time"

// A Batch is the requests that an instance runs together. It belongs to the
// scheduler; an instance may use it during Run only.
type Batch struct {
	Requests []*Request
	Rows     int // the sum of the requests' rows
	Times    Times
}

// Times are the points in an execution that statistics are made of. The
// scheduler sets Start and End, the instance the two between.
type Times struct {
	Start       time.Time // the instance has the batch
	InputsReady time.Time // the inputs are gathered
	OutputsOut  time.Time // the model has run; outputs are being handed out
	End         time.Time
}
