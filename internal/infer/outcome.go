package infer

// An Outcome is the outcome of a request. The scheduler sets Refused when it
// does not accept the request, the engine sets the others.
type Outcome uint8

// The outcomes.
const (
	Undecided Outcome = iota // it has no answer yet
	Answered                 // an instance answered it
	Cached                   // it was answered without an instance, from the response cache
	Failed                   // it ended with an error of its model
	Refused                  // it was never queued: it is invalid, or the queue was full
)
