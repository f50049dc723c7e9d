package engine

import (
	"context"
	"time"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// DefaultResponseQueueSize is the default of how many bytes of responses to one
// request may wait for a slow client. A response of a few numbers counts as
// half a kilobyte.
const DefaultResponseQueueSize = 64 << 20

// InferStream checks r, runs it and calls each with every response in turn, in
// the same form as Infer: once with final for an ordinary model, any number of
// times for a decoupled one, whose last may be nil. A response with Err set is
// an error that the model sent. If InferStream returns an error, the protocol
// must send it to the client as the last answer; each has not seen it.
//
// each is called on the caller's goroutine, must not keep the response, and may
// block: further responses wait. An error from it ends the request. Whatever
// InferStream returns, the caller must Release r.
func (v *Version) InferStream(ctx context.Context, r *infer.Request, each func(resp *infer.Response, final bool) error) error {
	if !v.decoupled {
		if err := v.Infer(ctx, r); err != nil {
			return err
		}
		return each(&r.Response, true)
	}
	if err := v.accept(r); err != nil {
		return err
	}
	begin := time.Now()
	v.stats.accepted()
	record := v.stats.delivered
	if r.Trace != nil {
		v.traceAccepted(r, begin)
		record = v.traceDeliveries(r)
	}
	r.Stream = infer.NewStream(v.queueSize, record)
	r.Stream.Within(r.Claim.Budget())
	return v.stream(ctx, r, begin, each)
}

// stream runs r on another goroutine, since a model may send all its responses
// before its execution returns, and passes them to each. It returns when the
// request is no longer in use.
func (v *Version) stream(ctx context.Context, r *infer.Request, begin time.Time, each func(*infer.Response, bool) error) (err error) {
	s := r.Stream
	stop := context.AfterFunc(ctx, func() { s.Cancel(gone(ctx)) }) // at once, even while each waits for the client
	defer stop()
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		if err := v.sched.Do(ctx, r); err != nil {
			s.Finish(err)
		} else if len(r.Response.Outputs) > 0 { // its backend gives only one answer
			_ = s.Send(&r.Response, true) // released with the request in any case
		}
	}()
	counted := false
	err = errUnread // unless each panics
	defer func() {
		if ctx.Err() != nil {
			s.Cancel(gone(ctx)) // this may run before AfterFunc does
		}
		if !counted {
			s.Cancel(errUnread)
		}
		<-ran
		if !counted {
			v.conclude(r, begin, err)
		} else if r.Trace != nil {
			r.Trace.Done(r.Queued, err)
		}
	}()
	for first := true; ; first = false {
		resp, final, err := s.Next(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		if first && resp != nil {
			v.stats.responded(time.Since(begin))
		}
		if final { // before the client knows, so that the counters include it
			counted = true
			r.Outcome = infer.Answered
			v.stats.succeeded(time.Since(begin))
		}
		if err := v.hand(r, resp, final, each); err != nil || final {
			return err
		}
	}
}

// hand passes one response to each and releases it.
func (v *Version) hand(r *infer.Request, resp *infer.Response, final bool, each func(*infer.Response, bool) error) error {
	if resp == nil {
		return each(nil, final)
	}
	defer resp.Release()
	if r.Trace != nil {
		traceResponse(r, resp)
	}
	if resp.Err == nil {
		resp.Err = v.finish(r, resp)
	}
	resp.Model, resp.Version = v.sig.Name, v.number
	return each(resp, final)
}

// ended returns why a stream has no more responses.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	return err
}

// gone returns why the client of a stream wants no more, as an error with a
// code.
func gone(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return status.Wrap(status.DeadlineExceeded, ctx.Err(), "the request's deadline passed")
	}
	return status.Wrap(status.Cancelled, ctx.Err(), "the request was cancelled")
}

var errUnread = status.Errorf(status.Cancelled, "the request's responses are no longer read")
