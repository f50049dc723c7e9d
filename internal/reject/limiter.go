package reject

import (
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// window and linesPerWindow bound the log: a client that sends a million
	// bad requests gets that many lines of each reason.
	window         = time.Second
	linesPerWindow = 5
	// clipAt is how much of a client's text is logged.
	clipAt = 256
)

// A limiter allows linesPerWindow lines in each window, which begins with the
// first of them. At its end it logs how many it suppressed.
type limiter struct {
	say func(missed int)

	mu     sync.Mutex // protects the fields below
	lines  int        // let through in this window
	missed int        // not let through
	timer  *time.Timer
	closed bool
}

// allow reports whether a line may be logged.
func (l *limiter) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(window, l.end)
	}
	if l.lines == linesPerWindow {
		l.missed++
		return false
	}
	l.lines++
	return true
}

// end ends a window.
func (l *limiter) end() {
	l.mu.Lock()
	missed := l.missed
	l.lines, l.missed, l.timer = 0, 0, nil
	l.mu.Unlock()
	if missed > 0 {
		l.say(missed)
	}
}

// close ends the last window.
func (l *limiter) close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.end()
}

func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// clip shortens a text and makes it valid UTF-8.
func clip(s string) string {
	if len(s) > clipAt {
		s = s[:clipAt] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
