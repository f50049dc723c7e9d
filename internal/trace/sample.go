package trace

import (
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// An Exporter sends traces elsewhere. Its methods must not block.
type Exporter interface {
	// Trace takes a trace that has ended. It must not keep it.
	Trace(*Trace)
	// Batch takes an execution, before the traces of its requests end. It must not
	// keep it.
	Batch(*Batch)
	// Dropped returns how many spans were lost.
	Dropped() uint64
	// Close sends what is left, for a moment at most.
	Close()
}

// A Tracer decides which requests are traced, and has their traces written. It is safe
// for concurrent use. Start makes one.
type Tracer struct {
	start    Config // what settings go back to
	exporter Exporter
	file     *file // nil when there is none
	on       atomic.Bool
	nextID   atomic.Uint64
	state    atomic.Pointer[state]

	mu      sync.Mutex // serialises changes, and protects the field below
	leaving []*setting // hold no more, but some of their traces were on their way
}

// A state is the settings that hold at one time.
type state struct {
	server *setting
	models map[string]*setting // those with settings of their own
}

func (s *state) of(model string) *setting {
	if m := s.models[model]; m != nil {
		return m
	}
	return s.server
}

// Start returns a tracer with these settings. In the mode opentelemetry the exporter
// takes the traces, and the tracer owns it.
func Start(c Config, x Exporter, log *slog.Logger) (*Tracer, error) {
	t := &Tracer{start: c, exporter: x}
	if c.Mode == ModeTriton && c.File != "" {
		f, err := startFile(c.File, log)
		if err != nil {
			return nil, err
		}
		t.file = f
	}
	t.publish(&state{server: t.newSetting(c.values(), 0)})
	return t, nil
}

// Off returns a tracer that traces nothing and has nothing to close.
func Off() *Tracer {
	t := &Tracer{start: DefaultConfig()}
	t.publish(&state{server: t.newSetting(t.start.values(), 0)})
	return t
}

// Close writes the traces that are left. All requests must have ended.
func (t *Tracer) Close() {
	t.mu.Lock()
	t.on.Store(false)
	t.retire(t.state.Load(), &state{})
	for _, s := range t.leaving {
		s.mu.Lock()
		s.flushLocked(t.file, s.frequency != 0)
		s.mu.Unlock()
	}
	t.mu.Unlock()
	if t.file != nil {
		t.file.close()
	}
	if t.exporter != nil {
		t.exporter.Close()
	}
}

// Dropped returns how many traces, or spans of them, were lost because the disk or the
// receiver was too slow or failed.
func (t *Tracer) Dropped() uint64 {
	switch {
	case t.file != nil:
		return t.file.dropped.Load()
	case t.exporter != nil:
		return t.exporter.Dropped()
	}
	return 0
}

// On reports whether any request may be traced. Unless it does, a request needs nothing
// else of the tracer.
func (t *Tracer) On() bool { return t.on.Load() }

// Propagates reports whether a caller's own trace matters.
func (t *Tracer) Propagates() bool { return t.exporter != nil }

// Sample returns a trace for a request to a model that was received at that time, nil
// when this one is not traced.
func (t *Tracer) Sample(model string, p Protocol, caller Parent, received time.Time) *Trace {
	if !t.on.Load() {
		return nil
	}
	s := t.state.Load().of(model)
	if !s.traces(t) || !s.sample(caller.Sampled()) {
		return nil
	}
	tr := &Trace{Protocol: p, Caller: caller, Received: received, level: s.level, tracer: t, setting: s}
	tr.Run.trace, tr.Run.ID = tr, t.nextID.Add(1)
	if t.exporter != nil {
		tr.TraceID, tr.SpanID, tr.Run.SpanID = caller.TraceID, t.newSpanID(), t.newSpanID()
		if !caller.Valid() {
			tr.TraceID = t.newTraceID()
		}
	}
	return tr
}

// ended has a trace written.
func (t *Tracer) ended(tr *Trace) {
	if t.exporter != nil {
		t.exporter.Trace(tr)
	} else if t.file != nil {
		tr.setting.collect(tr, t.file)
	}
}

// newTraceID and newSpanID return identities that no other trace or span has.
func (t *Tracer) newTraceID() (id [16]byte) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // zero is no identity
	return id
}

func (t *Tracer) newSpanID() (id [8]byte) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// traces reports whether the setting lets requests be traced.
func (s *setting) traces(t *Tracer) bool {
	if t.exporter != nil {
		return s.level&Timestamps != 0
	}
	return s.level != 0 && s.rate != 0 && t.file != nil
}

// sample reports whether the next request is traced. One that is a part of its
// caller's trace is traced in any case.
func (s *setting) sample(forced bool) bool {
	hit := s.rate != 0 && s.count.Load() != 0 && s.seen.Add(1)%uint64(s.rate) == 0
	if !hit && !forced {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch left := s.count.Load(); {
	case !hit || left == 0 && forced:
	case left == 0: // others were faster
		return false
	case left > 0:
		s.count.Store(left - 1)
	}
	s.created++
	return true
}
