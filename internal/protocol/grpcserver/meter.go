package grpcserver

import (
	"time"

	"golang.org/x/net/http2"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

// A meter weighs the work that a client causes against its useful calls. Work
// is counted in points, about one for each frame that carries nothing. Calls,
// messages of streams and bytes sent pay for it, and so does time, a little.
// Real clients stay far below: gRPC's own send a few pings and window updates
// for each message, which pays for them.
//
// It belongs to the goroutine that reads.
type meter struct {
	work int
	last time.Time // when work was last weighed
}

const (
	// maxWork is how much work is done before it is weighed: a flood of that
	// many frames takes a few tens of milliseconds.
	maxWork = 50_000
	// freeWork is how much work needs no payment, in points per second.
	freeWork = 5_000

	// What pays for work, in points: the end of a call, a message of a stream
	// that was read, and a number of bytes sent.
	businessCall    = 16
	businessMessage = 16
	businessBytes   = 256

	// smallData is how long DATA must be, unless it ends a stream, to cost
	// nothing.
	smallData = 64
	// refusalCost is the work of a call that is refused on its headers.
	// streamCost is that of a call with a stream of messages, for which one
	// message pays, and refusedStream that of a refused one: clients need few
	// streams.
	refusalCost   = 2
	streamCost    = 32
	refusedStream = 500
	// walkCost is how many steps along a list cost a point.
	walkCost = 8
)

// frameCost returns the work of a frame, whatever happens to it.
func frameCost(h h2.Header) int {
	switch h.Kind {
	case http2.FrameData:
		if h.Length >= smallData || h.Flags.Has(http2.FlagDataEndStream) {
			return 0
		}
	case http2.FrameRSTStream:
		return 2 // the call was begun in vain
	}
	return 1
}

var errTooMuchWork = connError{http2.ErrCodeEnhanceYourCalm, "too many frames for too few calls"}

// charge counts work, and returns an error when it is too much.
func (c *conn) charge(work int) error {
	m := &c.meter
	if m.work += work; m.work <= maxWork {
		return nil
	}
	now := time.Now()
	c.mu.Lock()
	paid := c.business
	c.business = 0
	c.mu.Unlock()
	if !m.weigh(now, paid) {
		c.closedBy(reject.TooMuchWork, errTooMuchWork.text)
		return errTooMuchWork
	}
	return nil
}

// weigh subtracts payment and free work from the work and reports whether most
// of it is covered.
func (m *meter) weigh(now time.Time, paid int) bool {
	free := maxWork
	if d := now.Sub(m.last); d < maxWork/freeWork*time.Second {
		free = int(d * freeWork / time.Second)
	}
	m.last = now
	m.work = max(0, m.work-paid-free)
	return m.work <= maxWork/2
}
