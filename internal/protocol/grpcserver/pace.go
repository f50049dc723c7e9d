package grpcserver

import "time"

// minRate is the fewest bytes per second at which a client may send a message or
// take an answer, once it has had the timeout to begin. It is the same over
// HTTP.
const minRate = 1 << 10

// Connections are looked at every lookEvery or more often. What was not there
// for maxLookGap is something new.
const (
	lookEvery  = time.Second
	maxLookGap = 5 * lookEvery / 2
)

// A pace follows something that has to keep moving. The zero value follows
// nothing yet.
type pace struct {
	from, base int64 // when a stretch began, in nanoseconds, and with how many bytes
	at, moved  int64 // when it was last seen to move, and how many bytes there were
	looked     int64 // when it was looked at last
}

// slow reports whether what has moved so many bytes by now has stood still for
// longer than stall, or is slower than minRate, give or take stall. A stretch
// that was fast earns the next one nothing.
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

// stop forgets what was followed.
func (p *pace) stop() { *p = pace{} }
