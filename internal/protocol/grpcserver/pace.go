package grpcserver

import "time"

// minRate is the fewest bytes per second at which a client may send a message
// or read an answer, once it has had the timeout to begin. It is the same over
// HTTP.
const minRate = 1 << 10

// Connections are checked every lookEvery or more often. Something that was
// absent for maxLookGap counts as new.
const (
	lookEvery  = time.Second
	maxLookGap = 5 * lookEvery / 2
)

// A pace tracks something that has to keep moving. The zero value tracks
// nothing yet.
type pace struct {
	from, base int64 // when a period began, in nanoseconds, and the bytes then
	at, moved  int64 // when it last moved, and the bytes then
	looked     int64 // when it was last checked
}

// slow reports whether something that has moved this many bytes by now has
// stood still for longer than stall, or is slower than minRate, with a
// tolerance of stall. A fast period earns the next one nothing.
func (p *pace) slow(now time.Time, moved int64, stall time.Duration) bool {
	t := now.UnixNano()
	if p.from == 0 || t-p.looked > int64(maxLookGap) {
		*p = pace{from: t, base: moved, at: t, moved: moved, looked: t}
		return false
	}
	p.looked = t
	if moved != p.moved {
		p.moved, p.at = moved, t
	}
	earned := (moved - p.base) * int64(time.Second/minRate)
	if t-p.at > int64(stall) || t-p.from > int64(stall)+earned {
		return true
	}
	if earned > int64(stall) {
		p.from, p.base = t, moved
	}
	return false
}

// stop resets the pace.
func (p *pace) stop() { *p = pace{} }
