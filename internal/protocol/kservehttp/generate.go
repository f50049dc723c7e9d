package kservehttp

import (
	"context"
	"io"

	"shoal/internal/accesslog"
	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
)

var (
	errNotOne = status.Errorf(status.Internal,
		"generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses")
	errIdentity  = status.Rejectf(reject.Unsupported, status.InvalidArgument, "Unsupported content-encoding, only 'identity' is supported.")
	errNoStreams = &httpserver.Error{Status: 505, Text: "generate_stream needs HTTP/1.1", Reason: reject.Unsupported}
)

const eventsType = "text/event-stream; charset=utf-8"

// generate answers a request in the short form with the one response that its
// model must give.
func (h *handler) generate(x *httpserver.Exchange, rt route) (err error) {
	v, a, err := h.receiveGenerate(x, rt)
	if err != nil {
		return err
	}
	defer func() {
		x.Access().Ran(a.request)
		a.trace.Fail(err)
		a.release()
	}()
	var out []byte
	var failed error // in place of the response
	count := 0
	err = v.InferStream(x.Context(), a.request, func(resp *infer.Response, _ bool) error {
		if resp == nil {
			return nil
		}
		if count++; count > 1 {
			return errNotOne
		}
		if failed = resp.Err; failed == nil {
			out, failed = appendGenerated(nil, a.request.ID, resp)
		}
		return nil
	})
	switch {
	case count > 1 || err == nil && count == 0:
		return errNotOne
	case err != nil && a.request.Outcome == infer.Failed:
		return generateFault{err}
	case err != nil:
		return err
	case failed != nil:
		return generateFault{failed}
	}
	a.trace.Sending()
	reply(x, out)
	return nil
}

// receiveGenerate reads a generate request. The caller must release the answer
// that holds it.
func (h *handler) receiveGenerate(x *httpserver.Exchange, rt route) (_ *engine.Version, _ *inferAnswer, err error) {
	v, err := h.engine.Acquire(rt.model, rt.version)
	if err != nil {
		return nil, nil, err
	}
	a := newAnswer(h.server.Memory, v)
	if h.engine.Tracer().On() {
		h.trace(x, a, v.Name())
	}
	defer func() {
		if err != nil {
			a.trace.Fail(err)
			a.release()
		}
	}()
	if enc := x.Header.Peek("Content-Encoding"); len(enc) > 0 && string(enc) != "identity" {
		return nil, nil, errIdentity
	}
	limit, tooLarge := h.server.MaxBodySize, httpserver.SizeError(httpserver.ErrBodyTooLarge)
	if h.maxInput < limit {
		limit, tooLarge = h.maxInput, errJSONTooLarge
	}
	if a.body, err = x.Receive(limit, tooLarge); err != nil {
		return nil, nil, err
	}
	a.trace.ReadDone()
	r := a.request
	r.Model, r.Version = v.Name(), v.Number()
	if access := x.Access(); access != nil {
		r.Spent = &access.Spent
		access.Model(v.Name(), v.Number())
	}
	d := newDecoder(r, v.Name(), h.maxInput, nil)
	err = d.generate(a.body.B, v.Signature())
	d.release()
	if err == nil && h.forward != nil {
		err = forwardHeaders(r, x.Header.RawHeaders(), h.forward)
	}
	return v.Version, a, status.Reject(reject.BadInput, err)
}

// generateStream answers a request in the short form with an event for each
// response. The first of them sets the status.
func (h *handler) generateStream(x *httpserver.Exchange, rt route) error {
	if x.IsHTTP10() {
		return errNoStreams // which has no chunks
	}
	v, a, err := h.receiveGenerate(x, rt)
	if err != nil {
		return err
	}
	s := &eventStream{handler: h, access: x.Access(), path: string(x.Header.RequestURI()), events: make(chan event), half: make(chan struct{}, 1), done: make(chan struct{})}
	run, cancel := context.WithCancel(x.Context())
	s.cancel = cancel
	go s.run(run, v, a)
	first, ok := <-s.events
	if ok && first.refused != nil {
		s.Close()
		return first.refused
	}
	s.first = first.data
	if first.code != 0 {
		x.SetStatus(first.code)
	}
	x.SetType(eventsType)
	x.WakeOnHalfClose(s.half)
	x.SetStream(s, -1)
	return nil
}

// An eventStream is the body of a generate_stream answer. A goroutine runs the
// request; the server takes the events from it after the handler has returned, and
// closes it when all are written or the client is gone.
type eventStream struct {
	handler *handler
	access  *accesslog.Entry // nil when there is no access log
	path    string
	events  chan event    // closed when there are no more
	half    chan struct{} // the client sends no more
	cancel  context.CancelFunc
	done    chan struct{} // closed when the request is given back
	first   []byte
}

// An event is one line of the answer.
type event struct {
	data    []byte
	code    int   // the status when it is the first, if it is an error
	refused error // why the request never got to the model
}

// run has the request run and hands its responses on as events.
func (s *eventStream) run(ctx context.Context, v *engine.Version, a *inferAnswer) {
	defer close(s.done)
	defer a.release()
	defer close(s.events)
	err := s.infer(ctx, v, a)
	s.access.Ran(a.request)
	if err != nil {
		a.trace.Fail(err)
		if a.request.Outcome == infer.Failed {
			err = generateFault{err}
		}
		e := errorEvent(err)
		if a.request.Outcome == infer.Refused {
			e.refused = err
		}
		if httpserver.HasCause(err) {
			s.handler.server.Log.Error("request failed", "method", "POST", "path", s.path, "err", err)
		}
		_ = s.give(ctx, e) // fails when nobody reads
	}
}

func (s *eventStream) infer(ctx context.Context, v *engine.Version, a *inferAnswer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Panicked(p)
		}
	}()
	return v.InferStream(ctx, a.request, func(resp *infer.Response, _ bool) error {
		if resp == nil {
			return nil
		}
		a.trace.Sending()
		if resp.Err != nil {
			return s.give(ctx, errorEvent(generateFault{resp.Err}))
		}
		b, err := appendGenerated([]byte("data: "), a.request.ID, resp)
		if err == nil {
			err = a.claim.Acquire(int64(cap(b)))
			defer a.claim.Release()
		}
		if err != nil {
			return s.give(ctx, errorEvent(err))
		}
		return s.give(ctx, event{data: append(b, "\n\n"...)})
	})
}

func errorEvent(err error) event {
	head, text := answer(err)
	return event{code: head.Status, data: append(appendError([]byte("data: "), text), "\n\n"...)}
}

// give waits until the event is taken.
func (s *eventStream) give(ctx context.Context, e event) error {
	select {
	case s.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WriteTo implements io.WriterTo. Each write goes out at once as a chunk.
func (s *eventStream) WriteTo(w io.Writer) (int64, error) {
	total := int64(0)
	for data := s.first; ; {
		if len(data) > 0 {
			n, err := w.Write(data)
			if total += int64(n); err != nil {
				return total, err
			}
		}
		select {
		case e, ok := <-s.events:
			if !ok {
				return total, nil
			}
			data = e.data
		case <-s.half:
			data = []byte(eventComment)
		}
	}
}

// eventComment is sent to find out whether the client is still there. Clients
// ignore it.
const eventComment = ":\n\n"

// Close implements io.Closer. It ends the request if it still runs.
func (s *eventStream) Close() error {
	s.cancel()
	<-s.done
	return nil
}
