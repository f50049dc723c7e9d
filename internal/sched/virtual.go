package sched

import (
	"time"

	"shoal/internal/infer"
)

// A Virtual is a batcher in virtual time, without goroutines: its driver says
// when requests come, when batches end and what time it is. The code that
// decides which requests run together, and when, is that of a Batcher. It is
// not safe for concurrent use.
type Virtual struct {
	former
	started  func(*Execution)
	rejected func(*infer.Request)
	now      time.Time
	due      time.Time // when the timer fires; zero when it does not
	held     []*Execution
	calls    []*call
	unused   []*Execution
}

// An Execution is a batch that an instance has.
type Execution struct {
	*infer.Batch
	bt   *batch
	look time.Time // when to ask the policy again, before it has started
	wake bool      // ask it at once
}

// NewVirtual returns a batcher over that many instances. It calls started when
// a batch starts and rejected for a request whose queue timeout has passed. It
// does not order answers.
func NewVirtual(cfg BatcherConfig, instances int, started func(*Execution), rejected func(*infer.Request)) *Virtual {
	v := &Virtual{started: started, rejected: rejected}
	cfg.PreserveOrder = false
	v.init(&cfg, nil)
	v.situation.Computes = true
	v.timer, v.lead, v.wake = v, v.hold, v.wakeUp
	v.end = func(c *call) {
		v.rejected(c.request)
		v.release(c)
	}
	for range instances {
		_ = v.Add(virtualInstance{}) // fails only where there is a pauser
	}
	return v
}

// A virtualInstance stands for one that computes on the thread of its runner.
type virtualInstance struct{}

func (virtualInstance) Run(*infer.Batch) error { return nil }
func (virtualInstance) Close() error           { return nil }
func (virtualInstance) ComputesOnThread()      {}

// Submit puts a request into the queue.
func (v *Virtual) Submit(r *infer.Request, now time.Time) error {
	v.now, r.Queued = now, now
	var c *call
	if n := len(v.calls); n > 0 {
		c, v.calls = v.calls[n-1], v.calls[:n-1]
	} else {
		c = new(call)
	}
	c.request, c.rows = r, max(r.Rows, 1)
	if !v.inbox.put(c) {
		if err := v.push(c, now); err != nil {
			v.release(c)
			return err
		}
	}
	v.settle()
	return nil
}

func (v *Virtual) release(c *call) {
	c.next, c.request = nil, nil
	v.calls = append(v.calls, c)
}

// Next returns when Advance next has something to do, zero when only another
// event can cause that.
func (v *Virtual) Next() time.Time {
	t := v.due
	for _, e := range v.held {
		if t.IsZero() || e.look.Before(t) {
			t = e.look
		}
	}
	return t
}

// Advance does what is due.
func (v *Virtual) Advance(now time.Time) {
	v.now = now
	if !v.due.IsZero() && !now.Before(v.due) {
		v.due, v.armed = time.Time{}, time.Time{}
		v.advance(now)
	}
	v.settle()
}

// End ends a batch that has run. The execution is not valid any more.
func (v *Virtual) End(e *Execution, now time.Time) {
	v.now = now
	bt := e.bt
	bt.run.Times.End = now
	v.finish(bt, false)
	v.leave(len(bt.entries))
	v.free(bt.instance, now)
	for i := range bt.entries {
		v.release(bt.entries[i].call)
	}
	v.recycle(bt)
	v.unused = append(v.unused, e)
	v.settle()
}

// hold records that an instance has a batch.
func (v *Virtual) hold(bt *batch) {
	var e *Execution
	if n := len(v.unused); n > 0 {
		e, v.unused = v.unused[n-1], v.unused[:n-1]
	} else {
		e = new(Execution)
	}
	*e = Execution{Batch: &bt.run, bt: bt, look: v.now}
	v.held = append(v.held, e)
}

func (v *Virtual) wakeUp(bt *batch) {
	for _, e := range v.held {
		if e.bt == bt {
			e.wake = true
		}
	}
}

// settle asks the policy whether held batches start, where that is due.
func (v *Virtual) settle() {
	for i := 0; i < len(v.held); {
		e := v.held[i]
		if v.now.Before(e.look) && !e.wake {
			i++
			continue
		}
		e.wake = false
		v.tryStart(e.bt, v.now)
		e.look = v.now.Add(max(e.bt.wait, 0))
		if e.bt.started {
			v.held = append(v.held[:i], v.held[i+1:]...)
			e.bt.fillRun()
			v.started(e)
		}
		i = 0 // others may have been given a batch, or woken
	}
}

// set and close make it a timer.
func (v *Virtual) set(d time.Duration) { v.due = v.now.Add(d) }
func (v *Virtual) close()              {}
