package judge

import (
	"fmt"
	"math"
	"time"

	"shoal/internal/perf/result"
)

// A Health says whether it makes sense to go on with a level.
type Health struct {
	Limit float64 // the share of requests that may fail
	Why   string  // it does not; empty while it does
	Cause string  // of the last failure

	answered    int64
	failed      int64
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

// Fail counts a failure. Fault says that the request itself is wrong, fatal that
// there is no point in going on.
func (h *Health) Fail(cause string, fault, fatal bool) {
	h.failed++
	h.silentFails++
	h.Cause = cause
	if fault {
		h.fault = cause
	}
	if fatal {
		h.fatal = cause
	}
}

// Tick looks at a tenth of a second with so many answers.
func (h *Health) Tick(now time.Duration, answered int64) {
	h.answered += answered
	if answered > 0 || h.silentSince == 0 {
		h.silentSince, h.silentFails = now, 0
	}
	switch {
	case h.Why != "":
	case h.fatal != "":
		h.Why = h.fatal
	case h.answered == 0 && h.fault != "":
		h.Why = h.fault // another request would be as wrong
	case h.answered == 0 && h.failed >= hopeless:
		h.Why = fmt.Sprintf("the first %d requests all failed: %s", h.failed, h.Cause)
	case h.answered > 0 && h.silentFails >= hopeless && now-h.silentSince >= deadAfter:
		h.Why = fmt.Sprintf("the server stopped answering after %d requests: %s", h.answered, h.Cause)
	case h.failed >= hopeless && atLeast(h.failed, h.failed+h.answered) > h.Limit:
		h.Why = fmt.Sprintf("%d of %d requests failed, more than the %s that --max-error-rate allows: %s", h.failed, h.failed+h.answered, result.Percent(h.Limit), h.Cause)
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
