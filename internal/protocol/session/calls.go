package session

import (
	"errors"
	"strings"
	"time"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/tensor"
	"shoal/internal/trace"
)

// next takes the next call from the ring; nil when there is none. A ring that
// cannot be right ends the session.
func (x *session) next() *slot {
	tail := load(word(x.client, tailAt))
	x.mu.Lock()
	defer x.mu.Unlock()
	n := tail - x.head
	if int32(n) <= 0 || x.over { // another runner may have taken it
		return nil
	}
	if n > maxSlots {
		x.fail()
		return nil
	}
	number := load(word(x.client, ringAt+4*int(x.head%maxSlots)))
	x.head++
	if number >= maxSlots || x.slots[number] == nil || x.slots[number].busy {
		x.fail()
		return nil
	}
	sl := x.slots[number]
	sl.busy = true
	sl.call, sl.running = load(word(sl.in, 0)), sl.caller
	x.server.began()
	return sl
}

// dispatch gives the calls in the ring to runners.
func (x *session) dispatch() {
	for sl := x.next(); sl != nil; sl = x.next() {
		x.start(sl)
	}
}

// start has a runner answer a call.
func (x *session) start(sl *slot) {
	select {
	case x.work <- sl: // one waits
	default:
		x.wg.Go(func() { x.runner(sl) })
	}
}

// maxWaiting is how many runners of a session wait for work.
const maxWaiting = 4

// runner answers a call, then those that it finds or is given.
func (x *session) runner(sl *slot) {
	for {
		for ; sl != nil; sl = x.poll() {
			x.answer(sl)
		}
		if x.waiting.Add(1) > maxWaiting {
			x.waiting.Add(-1)
			return
		}
		select {
		case sl = <-x.work:
			x.waiting.Add(-1)
		case <-x.done:
			return
		}
	}
}

const (
	// pollTime is how long a runner looks for the next call before it sleeps: to be
	// woken costs as much time, and the client's system call in addition.
	pollTime = 60 * time.Microsecond
	// maxSkip bounds how many times a session does not poll after it did in vain.
	maxSkip = 256
)

// poll waits a moment for the next call, if a core is free for that and the
// client's calls followed each other quickly before.
func (x *session) poll() *slot {
	if sl := x.next(); sl != nil {
		return sl
	}
	if x.server.cores < 2 || x.server.inFlight.Load() > 0 {
		return nil
	}
	if x.skip.Load() > 0 {
		x.skip.Add(-1)
		return nil
	}
	if !x.server.polls.CompareAndSwap(false, true) {
		return nil
	}
	polling, tail := word(x.ours, pollingAt), word(x.client, tailAt)
	x.mu.Lock()
	head := x.head
	x.mu.Unlock()
	store(polling, 1)
	for begin := time.Now(); load(tail) == head && time.Since(begin) < pollTime; {
	}
	store(polling, 0)
	x.server.polls.Store(false)
	// Calls that were added before the client could see that nobody polls.
	first := x.next()
	if first == nil {
		x.skip.Store(min(maxSkip, int32(1)<<min(x.misses.Add(1), 8)))
		return nil
	}
	x.misses.Store(0)
	x.dispatch()
	return first
}

// answer runs a call and tells the client.
func (x *session) answer(sl *slot) {
	call := sl.call
	if err := x.infer(sl, call); err != nil {
		writeError(sl.out, call, uint32(status.CodeOf(err)), status.Public(err))
		x.failed(err)
		sl.trace.Fail(err)
	}
	traced := sl.trace
	sl.trace = nil
	number, generation := sl.number, sl.generation
	x.mu.Lock()
	sl.busy = false // from here on the client may use it again
	x.mu.Unlock()
	answered := word(x.ours, answersAt+8*number)
	store(word(x.ours, answersAt+8*number+4), generation)
	store(word(x.ours, busyAt), uint32(x.server.inFlight.Load()-1))
	store(answered, call)
	switch load(word(x.client, waitsAt+4*number)) {
	case waitSleeps:
		wake(answered)
	case waitLoop:
		_ = x.raw.Write(x.notify) // fails when the client is gone
	}
	traced.End()
	x.server.ended(1)
}

// failed reports an error of a call.
func (x *session) failed(err error) {
	x.server.reject(x.conn, x.model, x.version, err)
	var known *status.Error
	if !errors.As(err, &known) || known.Cause != nil {
		x.server.opt.Log.Error("request failed", "protocol", reject.Session, "model", x.model, "err", err)
	}
}

// infer runs a call and writes its outputs.
func (x *session) infer(sl *slot, call uint32) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Panicked(p)
		}
	}()
	received := time.Now()
	lease, err := x.server.engine.Acquire(x.model, x.version)
	if err != nil {
		return err
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Hold(lease)
	r.Claim = x.server.opt.Memory.Claim()
	r.Model, r.Version = x.model, lease.Number()
	err = x.read(sl, r, lease.Rereads())
	x.traced(sl, r, received)
	if err != nil {
		return status.Reject(reject.BadInput, err)
	}
	if lease.Decoupled() { // it was loaded anew
		return status.Rejectf(reject.Unsupported, status.Unsupported, "model '%s' is decoupled: it may answer a request any number of times; use a gRPC stream or generate_stream", x.model)
	}
	if err := lease.Infer(sl.running, r); err != nil {
		return err
	}
	if _, size := answerSize(&r.Response); size > len(sl.out) {
		larger, err := x.enlarge(sl, sideOut, uint64(size))
		if err == nil {
			err = x.hand(larger)
		}
		if err != nil {
			return err
		}
	}
	sl.trace.Sending()
	writeAnswer(sl.out, call, &r.Response)
	return nil
}

// traced begins to trace a call, if it is one of those that are traced. The caller's
// own trace is the call's parameter traceparent.
func (x *session) traced(sl *slot, r *infer.Request, received time.Time) {
	tracer := x.server.engine.Tracer()
	if !tracer.On() {
		return
	}
	var caller trace.Parent
	for i := range r.Params {
		if p := &r.Params[i]; p.Name == "traceparent" && p.Kind == infer.ParamString && tracer.Propagates() {
			caller = trace.ParseParent(p.String, "")
		}
	}
	sl.trace = tracer.Sample(x.model, trace.Session, caller, received)
	sl.trace.ReadDone()
	r.Trace = sl.trace.First()
}

// read makes a request of the call in a slot. Strings are copied, since they are
// checked, and with all so is everything.
func (x *session) read(sl *slot, r *infer.Request, all bool) error {
	n := int(load(word(sl.in, 4)))
	if n > maxTable || n > len(sl.in)-inHead {
		return status.Errorf(status.InvalidArgument, "the table of the call has %d bytes, and at most %d are allowed", n, min(maxTable, len(sl.in)-inHead))
	}
	sl.table = append(sl.table[:0], sl.in[inHead:inHead+n]...)
	if err := parseTable(sl.table, sl.in, r); err != nil {
		return status.Wrap(status.InvalidArgument, nil, err.Error())
	}
	for i := range r.Params {
		if strings.HasPrefix(r.Params[i].Name, kserve.ReservedPrefix) {
			return status.Errorf(status.InvalidArgument, "parameter keys starting with '%s' are reserved for Triton usage", kserve.ReservedPrefix)
		}
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		if !all && in.Type != tensor.Bytes {
			in.Data.Shared = sl.shared
			continue
		}
		memory, err := r.GrowWithin(len(in.Data.First))
		if err != nil {
			return err
		}
		copy(memory, in.Data.First)
		in.Data = infer.Data{First: memory, Private: true}
	}
	return nil
}
