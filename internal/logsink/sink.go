// Package logsink writes a log to a stream that may stall, fail or lose its
// reader, without ever blocking the caller. Lines wait in a bounded buffer for
// one goroutine that writes them. Lines that do not fit, or that cannot be
// written, are dropped and counted; as soon as the stream accepts lines again,
// one of them says how many are missing.
//
// Start returns a running Sink that the caller must Close. All methods may be
// called from any goroutine.
package logsink

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultSize is how many bytes wait for a slow stream unless Options say
// otherwise; as many again may be in the current write.
const DefaultSize = 1 << 20

// Options are the settings of a sink. A zero value means the default.
type Options struct {
	// Size is how many bytes of lines may wait.
	Size int
	// Notice returns the line that says how many lines are missing; the default
	// is plain text.
	Notice func(lines uint64) []byte
	// Delay is how long lines may wait for others, so that one write takes them
	// all; the default is not to wait.
	Delay time.Duration
}

// A Sink is a stream for whole lines.
type Sink struct {
	to      io.Writer
	opt     Options
	wake    chan struct{} // buffered 1: something is pending, or the sink is closed
	hurry   chan struct{} // buffered 1: what is pending must not wait for more
	ended   chan struct{} // closed when the writer's goroutine has ended
	dropped atomic.Uint64

	midLine bool // the last write ended within a line; only the writer's goroutine uses it

	mu       sync.Mutex // protects the fields below
	pending  []byte
	spare    []byte // the memory of the chunk that was written last
	lost     uint64 // lines that were dropped and not yet reported
	accepted uint64 // number of accepted writes
	done     uint64 // number of those that were written or given up
	flushes  []flush
	closed   bool
}

// A flush waits until the first target writes are done.
type flush struct {
	target uint64
	done   chan struct{}
}

// Start returns a sink that writes to a stream.
func Start(to io.Writer, opt Options) *Sink {
	if opt.Size == 0 {
		opt.Size = DefaultSize
	}
	if opt.Notice == nil {
		opt.Notice = plainNotice
	}
	s := &Sink{to: to, opt: opt, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.run()
	return s
}

// Write takes p, which is one line or several, or drops it. It never blocks and
// never fails.
func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	before := len(s.pending)
	if s.closed || before+len(p) > s.opt.Size {
		s.dropLocked(p)
	} else {
		s.pending = append(s.pending, p...)
		s.accepted++
	}
	after := len(s.pending)
	s.mu.Unlock()
	if s.opt.Delay == 0 || before == 0 { // otherwise the first of them has done it
		kick(s.wake)
	}
	if soon := s.opt.Size / 4; before < soon && after >= soon {
		kick(s.hurry)
	}
	return len(p), nil
}

func (s *Sink) dropLocked(lines []byte) {
	n := max(1, uint64(bytes.Count(lines, []byte{'\n'})))
	s.lost += n
	s.dropped.Add(n)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Dropped returns how many lines were dropped since the start.
func (s *Sink) Dropped() uint64 { return s.dropped.Load() }

// run writes what is pending until the sink is closed.
func (s *Sink) run() {
	defer close(s.ended)
	for range s.wake {
		s.linger()
		for s.writeChunk() {
		}
		s.mu.Lock()
		over := s.closed && len(s.pending) == 0
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// linger lets more lines come.
func (s *Sink) linger() {
	if s.opt.Delay == 0 {
		return
	}
	timer := time.NewTimer(s.opt.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry:
	}
}

// writeChunk writes the pending lines and then the notice of lost ones. It
// reports whether there was anything to write and the stream accepted it.
func (s *Sink) writeChunk() bool {
	s.mu.Lock()
	chunk, target := s.pending, s.accepted
	lost := s.lost // the buffer was full of chunk, so they are missing after it
	s.pending, s.spare = s.spare[:0], nil
	s.mu.Unlock()
	rest, err := s.write(chunk)
	s.mu.Lock()
	s.spare = chunk[:0]
	if len(rest) > 0 {
		s.dropLocked(rest)
	}
	s.finishLocked(target)
	s.mu.Unlock()
	if err != nil {
		return false // the next line tries again
	}
	if lost == 0 {
		return len(chunk) > 0
	}
	return s.report(lost)
}

// report writes the line about lost lines.
func (s *Sink) report(lost uint64) bool {
	if _, err := s.write(s.opt.Notice(lost)); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost -= lost
	return true
}

// write writes b and returns the part that the stream did not accept.
func (s *Sink) write(b []byte) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if s.midLine {
		if _, err := s.to.Write([]byte{'\n'}); err != nil {
			return b, err
		}
		s.midLine = false
	}
	n, err := s.to.Write(b)
	if n > 0 {
		s.midLine = b[n-1] != '\n'
	}
	return b[n:], err
}

// finishLocked ends the flushes that wait for at most target writes.
func (s *Sink) finishLocked(target uint64) {
	s.done = target
	kept := s.flushes[:0]
	for _, f := range s.flushes {
		if f.target > target {
			kept = append(kept, f)
			continue
		}
		close(f.done)
	}
	s.flushes = kept
}

// Flush returns when all lines so far are written or given up, but after limit
// at the latest. It reports whether that was in time.
func (s *Sink) Flush(limit time.Duration) bool {
	s.mu.Lock()
	if s.done >= s.accepted {
		s.mu.Unlock()
		return true
	}
	f := flush{s.accepted, make(chan struct{})}
	s.flushes = append(s.flushes, f)
	s.mu.Unlock()
	kick(s.hurry)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-f.done:
		return true
	case <-timer.C:
		return false
	}
}

// Close accepts no more lines, writes the pending ones for at most limit and
// reports whether that was enough. Otherwise it leaves a blocked write behind.
func (s *Sink) Close(limit time.Duration) bool {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	kick(s.wake)
	kick(s.hurry)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ended:
		return true
	case <-timer.C:
		return false
	}
}
