package sched

import (
	"time"

	"shoal/internal/infer"
)

// A Policy decides which requests run together and when. It is asked with the
// scheduler's lock held, must not block and starts nothing: the same view, after
// the same runs, gives the same decision. So it can be driven in virtual time.
type Policy interface {
	// Decide says what to do in the situation v, which it neither changes nor
	// keeps.
	Decide(v *View) Decision
	// Observe tells of a batch that has run.
	Observe(r Run)
	// Needs says what the policy uses. It does not change.
	Needs() Needs
}

// Needs say what a policy uses, so that nothing is done for others.
type Needs struct {
	// WhileBusy says that requests may need a decision before an instance is
	// idle.
	WhileBusy bool
	// Timer says that Decide uses Wait for requests that no instance holds.
	Timer bool
	// Runs says that Decide uses Running, or Observe what it is told.
	Runs bool
}

// A View is the situation that a policy decides on. Two questions are asked of
// it: when Held is nil, which of the waiting requests join the open batch, or
// begin one; when it is not, whether the held batch starts.
type View struct {
	Now time.Time
	// Open is the rows of the batch that takes more requests, 0 when there is
	// none.
	Open int
	// Queue are the waiting requests, in the order in which they are served, up
	// to the first that cannot join. It is nil until a decision asks for it with
	// Look.
	Queue []Candidate
	// Requests and Rows are how many wait.
	Requests, Rows int
	// Mixed says that the waiting requests differ in priority, timeout or
	// inputs, or may: Queue has more to say than Requests and Rows.
	Mixed bool
	// KeepQueued says that requests may time out or be overtaken, and so should
	// stay in the queue until an instance is idle.
	KeepQueued bool
	// Draining says that few or no more requests will come, so that waiting for
	// them does not pay.
	Draining bool
	// Instances is how many there are, and Idle how many of them have no batch.
	Instances, Idle int
	// Formed is how many batches wait for an instance, and Ahead how many wait
	// at an instance that runs another.
	Formed, Ahead int
	// Running are the batches that run, the oldest first.
	Running []Running
	// InFlight is how many requests have no answer yet, and Peak how many had
	// none at once of late: the difference is expected back.
	InFlight, Peak int
	// Held is the batch that an instance holds and that could start.
	Held *Held
	// Behind are the batches that wait for an instance, the oldest first. It is
	// nil until a decision on a held batch asks for it with Look.
	Behind []Candidate
}

// A Candidate is a request that waits, or a batch.
type Candidate struct {
	Rows   int
	Queued time.Time
	// Expires is when the request times out; zero when it does not.
	Expires time.Time
	// Level is its priority, 0 the most urgent.
	Level int
	// Differs says that its inputs cannot be in one batch with those of the
	// batch's first request.
	Differs bool
}

// A Running is a batch that runs.
type Running struct {
	Rows       int
	Start, End time.Time // the end is a prediction
	at         *instance
}

// A Held is a batch that an instance holds.
type Held struct {
	Rows, Requests int
	// Open says that it takes more requests, Sealed that it may not be merged
	// with other batches.
	Open, Sealed bool
	// Ahead says that its instance runs another batch: to start it is to have
	// its inputs ready when that ends.
	Ahead bool
	// LastRun is how long the last batch of its instance took.
	LastRun time.Duration
	// Since is when the first decision was made on it, and Looks how many have
	// been. Idle counts the waits since a request last joined it.
	Since       time.Time
	Looks, Idle int
}

// A Decision says what to do.
//
// With Take or Fill waiting requests join the open batch, which begins if there
// is none: the first Take of them, or as many as fit into Fill rows. A batch
// that has Fill rows, or cannot have the next request, is closed. With neither,
// nor Close, look again after Wait or as soon as More rows have come; when both
// are zero, when an instance is idle. With Start the batch starts as soon as it
// has an instance, and no decision is made on it when it is held.
//
// A held batch starts with Start, together with the first Take batches behind it.
// Otherwise look again after Wait or as soon as it has More rows.
type Decision struct {
	Take, Fill int
	// Close says that the batch takes no more after this.
	Close bool
	// Seal says that it may not be merged with another either.
	Seal   bool
	Reason infer.Reason
	Wait   time.Duration
	More   int
	// Look asks for the same decision again with Queue, or Behind.
	Look  bool
	Start bool
}

// Yield as the Wait of a decision on a held batch lets goroutines run that are
// ready to, and does not wait for requests that none of them has read yet. With
// Start the batch starts after it.
const Yield time.Duration = -1

// A Run is a batch that has run.
type Run struct {
	Rows, Requests int
	// Busy is how many batches ran when it started, with itself.
	Busy       int
	Start, End time.Time
	Failed     bool
	Batch      *infer.Batch // with the requests; only until Observe returns
}
