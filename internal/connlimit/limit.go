// Package connlimit bounds the connections of a server. At the limit a new
// connection replaces the one that has been idle longest, so that a probe is
// answered however many idle connections there are. The new one is refused only
// when all have requests in flight. HTTP, gRPC and the metrics each have a
// Limit. All methods may be called from any goroutine.
package connlimit

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A Conn is a connection of the limited server.
type Conn interface {
	comparable
	// IdleSince returns when the connection became idle, in nanoseconds since
	// 1970, and whether it is idle: the server waits for its client. A
	// connection that never had a request counts as older by Unused.
	IdleSince() (int64, bool)
	// CloseIdle closes the connection and returns true, unless a request has
	// come meanwhile, even one that the server has not read yet (Unread).
	CloseIdle() bool
}

// A Limit holds the connections of one server.
type Limit[C Conn] struct {
	max     int
	evicted func(C) // called for each connection that was closed for another

	mu     sync.Mutex // protects the fields below
	conns  map[C]struct{}
	oldest []C       // the longest idle at the last scan, the oldest last
	none   time.Time // when a scan found nothing to close
	young  bool      // some were idle then, but not long enough
}

// Unused is how much older a connection without a request counts: many of them
// must not displace the connections of clients that pause between requests.
const Unused = int64(10_000 * time.Hour)

const (
	// maxOldest is how many connections one scan returns, so that a scan of all
	// of them costs little for each.
	maxOldest = 64
	// lookPause is how long to wait after a scan that found nothing.
	lookPause = 10 * time.Millisecond
	// grace is how long a connection must have been idle to be closed for
	// another, and graceStep how often that is checked.
	grace     = 100 * time.Millisecond
	graceStep = 10 * time.Millisecond
)

// New returns a limit of that many connections. It calls evicted for each
// connection that made room for another; evicted must not call the limit.
func New[C Conn](limit int, evicted func(C)) *Limit[C] {
	return &Limit[C]{max: limit, evicted: evicted, conns: make(map[C]struct{})}
}

// Add adds c and reports whether there was room, or could be made. It waits
// while all idle connections are new: each gets time to send its request,
// however many others want its place.
func (l *Limit[C]) Add(c C) bool {
	for {
		added, again := l.add(c)
		if added || !again {
			return added
		}
		time.Sleep(graceStep)
	}
}

func (l *Limit[C]) add(c C) (added, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.max && !l.evictLocked() {
		return false, l.young
	}
	l.conns[c] = struct{}{}
	return true, false
}

// Remove removes a closed connection.
func (l *Limit[C]) Remove(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// Accept is ln.Accept. When the process has no file descriptor left, it closes
// an idle connection and tries again.
func (l *Limit[C]) Accept(ln net.Listener) (net.Conn, error) {
	for {
		nc, err := ln.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !l.evict() {
			return nc, err
		}
	}
}

func (l *Limit[C]) evict() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evictLocked()
}

// evictLocked closes the connection that has been idle longest and reports
// whether there was one.
func (l *Limit[C]) evictLocked() bool {
	for range 2 { // the known ones, then those of a new scan
		for len(l.oldest) > 0 {
			c := l.oldest[len(l.oldest)-1]
			l.oldest = l.oldest[:len(l.oldest)-1]
			if _, open := l.conns[c]; open && c.CloseIdle() {
				delete(l.conns, c)
				l.evicted(c)
				return true
			}
		}
		if now := time.Now(); now.Sub(l.none) > lookPause {
			if l.lookLocked(); len(l.oldest) == 0 {
				l.none = now
			}
		}
	}
	return false
}

// lookLocked finds the connections that have been idle longest.
func (l *Limit[C]) lookLocked() {
	type idle struct {
		c     C
		since int64
	}
	var all []idle
	now := time.Now().UnixNano()
	l.young = false
	for c := range l.conns {
		since, ok := c.IdleSince()
		switch {
		case !ok:
		case (now-since)%Unused < int64(grace):
			l.young = true
		default:
			all = append(all, idle{c, since})
		}
	}
	slices.SortFunc(all, func(a, b idle) int { return cmp.Compare(a.since, b.since) })
	// Not so many that new connections are among them.
	all = all[:min(max(len(all)/4, 1), len(all), maxOldest)]
	slices.Reverse(all)
	l.oldest = l.oldest[:0]
	for _, i := range all {
		l.oldest = append(l.oldest, i.c)
	}
}
