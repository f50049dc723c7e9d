package ensemble

import (
	"sync"

	"shoal/internal/infer"
)

// maxFrames bounds the responses of one call of a decoupled step that are in
// later steps at a time: its model waits when these are slower.
const maxFrames = 256

// stream runs a decoupled step. Each of its responses begins a frame.
func (f *frame) stream(i int, child *infer.Request, sequence *infer.Sequence) {
	x := f.x
	call := &lent{request: child}
	call.refs.add(1)
	defer call.release(1)
	room := f.room(i)
	var last <-chan struct{}
	err := x.s.host.InferStream(x.ctx, child, func(resp *infer.Response, _ bool) error {
		switch {
		case resp == nil:
			return nil
		case resp.Err != nil:
			return resp.Err
		}
		if room != nil {
			select {
			case room <- struct{}{}:
			case <-x.ctx.Done():
				return x.ctx.Err()
			}
		}
		next := f.below(i, last)
		last = next.done
		next.origin.response, next.origin.call = resp.Take(), call
		call.refs.add(1)
		entered := next.start(i, child, sequence, room)
		<-entered // steps get the responses in their order
		return nil
	})
	f.letGo(&x.s.graph.Steps[i])
	if err != nil {
		x.failStep(&x.s.graph.Steps[i], err)
	}
}

// room returns what bounds the frames of a call of step i; nil when nothing
// does. Where responses lead to further decoupled steps there is no bound: a
// call could wait for the answers of one that waits for it.
func (f *frame) room(i int) chan struct{} {
	g := f.x.s.graph
	if g.Level[g.Steps[i].Outputs[0].Tensor] != g.Answers || f.level != 0 {
		return nil
	}
	return make(chan struct{}, maxFrames)
}

// below returns a frame for a response of step i, which comes after another.
func (f *frame) below(i int, before <-chan struct{}) *frame {
	g := f.x.s.graph
	next := f.x.newFrame(g.Level[g.Steps[i].Outputs[0].Tensor])
	next.parent, next.before, next.done = f, before, make(chan struct{})
	next.count()
	return next
}

// start runs the frame of a response of step i to child on its own goroutine. It
// returns a channel that is closed once the first step after it is queued, or the
// frame has ended.
func (f *frame) start(i int, child *infer.Request, sequence *infer.Sequence, room chan struct{}) <-chan struct{} {
	entered := make(chan struct{})
	once := sync.OnceFunc(func() { close(entered) })
	f.entered = once
	rows := child.Rows
	f.parent.wait.Go(func() {
		defer once()
		if room != nil {
			defer func() { <-room }()
		}
		defer close(f.done)
		defer f.recovered()
		ready := f.take(&f.x.s.graph.Steps[i], f.origin.response, &f.origin, rows, sequence, f.ready[:0])
		f.exec(ready)
		f.wait.Wait()
		once() // the call must not wait for answers: those before may need it to go on
		f.end()
	})
	return entered
}

// end gives the frame's answer, when it has one, and ends the use of the rest.
func (f *frame) end() {
	f.drop(!f.answers() || !f.answer())
}

// answers reports whether the frame has the ensemble's outputs.
func (f *frame) answers() bool { return f.level == f.x.s.graph.Answers }

// answer sends the frame's answer to the client, after those of the frames
// before it. It returns false when there was none.
func (f *frame) answer() bool {
	f.turn()
	x := f.x
	if x.failed() {
		return false
	}
	if err := x.r.Stream.Wait(); err != nil {
		x.fail(err)
		return false
	}
	resp := new(infer.Response)
	if err := f.fill(resp); err != nil {
		x.fail(err)
		return false
	}
	resp.Own(outputs{f})
	if err := x.r.Stream.Send(resp, false); err != nil {
		x.fail(err) // the stream has released the response
	}
	return true
}

// turn returns when the frames before this one have given their answers.
func (f *frame) turn() {
	if f.parent == nil {
		return
	}
	f.parent.turn()
	if f.before != nil {
		<-f.before
	}
}

// outputs are the tensors of a frame's answer.
type outputs struct{ f *frame }

// Release implements infer.Releaser.
func (o outputs) Release() { o.f.releaseOutputs() }
