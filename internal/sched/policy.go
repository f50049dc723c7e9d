package sched

import (
	"time"

	"shoal/internal/infer"
)

// A Policy decides which requests run together and when. It is called with the
// scheduler's lock held, must not block and has no side effects: the same view,
// after the same runs, gives the same decision. So it can be driven in virtual
// time.
type Policy interface {
	// Decide decides what to do in the situation v, which it neither changes
	// nor keeps.
	Decide(v *View) Decision
	// Observe reports a batch that has run.
	Observe(r Run)
	// Needs returns what the policy uses. It does not change.
	Needs() Needs
}

// Needs are the features that a policy uses; the others are skipped.
type Needs struct {
	// WhileBusy means that requests may need a decision before an instance is
	// idle.
	WhileBusy bool
	// Timer means that Decide uses Wait for requests that no instance holds.
	Timer bool
	// Runs means that Decide uses Running, or that Observe does something.
	Runs bool
}

// A View is the situation that a policy decides on. There are three questions.
// When Held is nil: which of the waiting requests join the open batch, or begin
// one? If none waits and no batch is open: for how many rows is the first that
// comes to wait, and how long? Otherwise: does the held batch start?
type View struct {
	Now time.Time
	// Open is the rows of the open batch, 0 when there is none.
	Open int
	// Queue are the waiting requests, in the order in which they are served, up
	// to the first that cannot join. It is nil until a decision asks for it with
	// Look.
	Queue []Candidate
	// Requests and Rows are how many wait.
	Requests, Rows int
	// Mixed means that the waiting requests may differ in priority, timeout or
	// inputs: Queue then has more information than Requests and Rows.
	Mixed bool
	// KeepQueued means that requests may time out or be overtaken, and so
	// should stay in the queue until an instance is idle.
	KeepQueued bool
	// Draining means that few or no more requests will come, so that waiting
	// for them does not pay.
	Draining bool
	// Instances is how many there are, and Idle how many of them have no batch.
	Instances, Idle int
	// Formed is how many batches wait for an instance, and Ahead how many wait
	// at an instance that runs another.
	Formed, Ahead int
	// Overlaps means that the only instance prepares a batch while a device
	// computes another.
	Overlaps bool
	// Computes means that the instances compute on the processors of this process,
	// so that a batch of another size costs little to try.
	Computes bool
	// Running are the batches that run, the oldest first.
	Running []Running
	// InFlight is how many requests have no answer yet, and Peak the recent
	// maximum of that: the difference is expected back.
	InFlight, Peak int
	// Varies is by which share of itself Peak changes: little while the same
	// callers send again and again.
	Varies float64
	// Held is the batch that an instance holds and that could start.
	Held *Held
	// Behind are the batches that wait for an instance, the oldest first. It is
	// nil until a decision on a held batch asks for it with Look.
	Behind []Candidate
}

// A Candidate is a waiting request, or a batch.
type Candidate struct {
	Rows   int
	Queued time.Time
	// Expires is when the request times out; zero when it does not.
	Expires time.Time
	// Level is its priority, 0 the most urgent.
	Level int
	// Differs means that its inputs cannot share a batch with those of the
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
	// Open means that it accepts more requests, Sealed that it must not be
	// merged with other batches.
	Open, Sealed bool
	// Ahead means that its instance runs another batch: starting it prepares
	// its inputs meanwhile.
	Ahead bool
	// LastRun is how long the last batch of its instance took.
	LastRun time.Duration
	// Since is when the first decision was made on it, or when its first request
	// came, if that was left in the queue. Looks is how many decisions have been made.
	Since time.Time
	Looks int
	// Newest is when the request came that joined it last.
	Newest time.Time
	// Expires is when the first of its requests would have timed out in the
	// queue; zero when none would.
	Expires time.Time
}

// A Decision says what to do.
//
// With Take or Fill waiting requests join the open batch, or begin one: the
// first Take of them, or as many as fit into Fill rows. A batch that has Fill
// rows, or that the next request does not fit into, is closed. With neither,
// nor Close, decide again after Wait or as soon as More rows have come; when
// both are zero, when an instance is idle. While none waits, Wait begins when the
// first comes. With Start the batch starts as soon as it has an instance, without
// another decision.
//
// A held batch starts with Start, together with the first Take batches behind
// it. Otherwise decide again after Wait or as soon as it has More rows.
type Decision struct {
	Take, Fill int
	// Close makes the batch accept no more requests after this.
	Close bool
	// Seal keeps it from being merged with another batch.
	Seal   bool
	Reason infer.Reason
	Wait   time.Duration
	More   int
	// Look asks for the same decision again with Queue, or Behind.
	Look  bool
	Start bool
}

// Yield as the Wait of a decision on a held batch lets ready goroutines run,
// but does not wait for requests that are still in sockets. With Start the
// batch starts after it.
const Yield time.Duration = -1

// A Run is a batch that has run.
type Run struct {
	Rows, Requests int
	// Busy is how many batches ran when it started, including itself.
	Busy int
	// Since is when its instance got it. Requests that came later did so while
	// the instance waited for them.
	Since time.Time
	// LastEnd is when its instance ended the batch before; zero for its first.
	LastEnd    time.Time
	Start, End time.Time
	// InFlight is how many requests had no answer when it ended, including its own.
	InFlight int
	Failed   bool
	Batch    *infer.Batch // with the requests; only until Observe returns
}
