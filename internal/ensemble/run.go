package ensemble

import (
	"context"
	"strings"
	"sync"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A run is one request on its way through an ensemble.
type run struct {
	s     *Scheduler
	ctx   context.Context
	r     *infer.Request
	plan  *plan
	batch infer.Batch // the request, for the record
	spent infer.Spent
	top   *frame
	stop  context.CancelFunc // ends ctx; nil when that is the client's own

	mu  sync.Mutex // protects the field below
	err error      // the first one
}

func (s *Scheduler) newRun() *run {
	x := &run{s: s}
	x.top = x.newFrame(0)
	return x
}

// do sends the request through the steps.
func (x *run) do() error {
	if x.r.Stream != nil {
		x.ctx, x.stop = context.WithCancel(x.ctx)
		defer x.stop()
	}
	f := x.top
	f.count()
	ready := f.ready[:0]
	for i := range x.r.Inputs {
		ready = f.setInput(&x.r.Inputs[i], ready)
	}
	for i, t := range x.s.graph.Inputs { // those that the client has left out
		if x.s.sig.Inputs[i].Optional && !f.values[t].set {
			ready = f.set(t, value{absent: true}, ready)
		}
	}
	if x.r.Entered != nil && len(ready) > 1 {
		x.r.Entered()
		x.r.Entered = nil // otherwise it is passed on to the only step
	}
	f.exec(ready)
	f.wait.Wait()
	if x.r.Stream != nil {
		f.end()
		if x.err == nil {
			x.r.Stream.Finish(nil)
		}
		return x.err
	}
	if x.err == nil {
		if err := f.fill(&x.r.Response); err != nil {
			x.fail(err)
		} else {
			x.r.Response.Own(x)
			return nil
		}
	}
	f.drop(true)
	return x.err
}

// failStep ends the run with the error of a step. Triton's clients know the
// errors as they are in front, so the step's name comes at the end, unless the
// error has it.
func (x *run) failStep(step *model.Step, err error) {
	if text := status.Public(err); !strings.Contains(text, "'"+step.Model+"'") && !strings.Contains(text, "'"+step.Model+"_") {
		err = status.Suffix(err, " (step '"+step.Model+"')")
	}
	x.fail(err)
}

// fail ends the run with an error, unless there was one before.
func (x *run) fail(err error) {
	x.mu.Lock()
	if x.err == nil {
		x.err = status.Prefix(x.s.prefix, err)
	}
	x.mu.Unlock()
	if x.stop != nil {
		x.stop()
	}
}

func (x *run) failed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil
}

// Release implements infer.Releaser for the response.
func (x *run) Release() {
	x.top.releaseOutputs()
	x.put()
}

// put keeps the run for another request.
func (x *run) put() {
	if x.stop != nil {
		return // responses of its frames may still be on their way
	}
	x.ctx, x.r, x.plan, x.err = nil, nil, nil, nil
	x.batch.Requests[0] = nil
	x.spent.Reset()
	x.top.reset()
	x.s.runs.Put(x)
}

// A value is a tensor in a frame.
type value struct {
	set    bool
	absent bool // its model left it out, or the client did
	typ    tensor.Type
	shape  tensor.Shape
	data   infer.Data
	rows   int   // the size of the batch dimension; 0 when there is none
	from   *lent // the memory that it is in; nil for the client's
	// sequence is what the step that made the tensor was told, or has said, of
	// the request's sequence; nil when no step has made it.
	sequence *infer.Sequence
}

// A lent is memory of a model that has answered a step.
type lent struct {
	refs     refs
	request  *infer.Request  // the step's; nil when it is in call
	response *infer.Response // one of a stream; nil when there is no other than the request's
	call     *lent           // the request of the stream
	sequence infer.Sequence
	// borrows is set when the answer is in the memory of the step's inputs,
	// which are let go with it.
	borrows *model.Step
	frame   *frame // of the step
}

// release ends n uses of the memory.
func (l *lent) release(n int) {
	if l == nil || !l.refs.drop(n) {
		return
	}
	if l.response != nil {
		l.response.Release()
		l.call.release(1)
		return
	}
	l.request.Release()
	if l.borrows != nil {
		l.frame.letGo(l.borrows)
	}
}
