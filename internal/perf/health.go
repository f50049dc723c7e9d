package perf

import (
	"fmt"
	"math"
	"time"
)

// A health says whether it makes sense to go on with a level.
type health struct {
	limit float64 // the share of requests that may fail
	why   string  // it does not

	answered    int64
	failed      int64
	cause       string // of the last failure
	fault       string // of the last failure that says the request is wrong
	silentSince time.Duration
	silentFails int64 // failures since the last answer
	fatal       string
}

const (
	// hopeless failures and not one answer end a run.
	hopeless = 50
	// deadAfter is how long a server that answered before may only fail.
	deadAfter = time.Second
)

// fail counts a failure.
func (h *health) fail(f failure) {
	h.failed++
	h.silentFails++
	h.cause = f.cause
	if f.fault {
		h.fault = f.cause
	}
	if f.fatal {
		h.fatal = f.cause
	}
}

// tick looks at a tenth of a second with so many answers.
func (h *health) tick(now time.Duration, answered int64) {
	h.answered += answered
	if answered > 0 || h.silentSince == 0 {
		h.silentSince, h.silentFails = now, 0
	}
	switch {
	case h.why != "":
	case h.fatal != "":
		h.why = h.fatal
	case h.answered == 0 && h.fault != "":
		h.why = h.fault // another request would be as wrong
	case h.answered == 0 && h.failed >= hopeless:
		h.why = fmt.Sprintf("the first %d requests all failed: %s", h.failed, h.cause)
	case h.answered > 0 && h.silentFails >= hopeless && now-h.silentSince >= deadAfter:
		h.why = fmt.Sprintf("the server stopped answering after %d requests: %s", h.answered, h.cause)
	case h.failed >= hopeless && atLeast(h.failed, h.failed+h.answered) > h.limit:
		h.why = fmt.Sprintf("%d of %d requests failed, more than the %s that --max-error-rate allows: %s", h.failed, h.failed+h.answered, percent(h.limit), h.cause)
	}
}

// atLeast returns the share of failures that these counts leave no doubt of:
// Wilson's lower bound, five deviations away. A server whose share is just the
// limit is looked at a thousand times and should not be given up by chance.
func atLeast(failed, total int64) float64 {
	const z = 5
	n, share := float64(total), float64(failed)/float64(total)
	return (share + z*z/(2*n) - z*math.Sqrt(share*(1-share)/n+z*z/(4*n*n))) / (1 + z*z/n)
}
