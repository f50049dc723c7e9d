package kservegrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// An inferStream is one ModelStreamInfer call. One goroutine reads requests,
// one per request runs it, and the call's own sends the answers in the order of
// the requests. Answers of decoupled models, of which there may be many to a
// request, are sent as they come. A request is read only when there is room,
// and its answer counts until it is sent, so that the server does not read from
// a client that does not read.
type inferStream struct {
	server *Server
	stream grpc.ServerStream
	ctx    context.Context
	// grpcErrors makes the first execution error end the stream.
	grpcErrors bool

	room    *room
	answers chan *answer // in the order of the requests; closed when there are no more
	readErr error        // why there are no more; set before answers is closed
	parts   chan part    // answers of decoupled models
	open    atomic.Int64 // unfinished requests to decoupled models

	sequences map[sequenceKey]*answer // only the reader uses it

	mu     sync.Mutex // protects the fields below and the replies of answers
	unsent map[*answer]struct{}
	over   bool // nothing is sent any more
}

// An answer is the answer to one request of a stream.
type answer struct {
	done  chan struct{} // closed when the fields below are set
	size  int           // bytes that it holds: the request's, then its own
	reply *encoded
	err   error // ends the stream instead of being sent
}

// A part is one of the answers to a request of a decoupled model.
type part struct {
	reply *encoded // nil when there is nothing to send
	err   error    // ends the stream instead of being sent
	last  bool
	size  int // of the request, with the last
}

// streamBytes is how much a stream may hold before nothing more is read from
// it.
const streamBytes = 256 << 20

// modelStreamInfer handles a ModelStreamInfer call.
func (s *Server) modelStreamInfer(_ any, stream grpc.ServerStream) (err error) {
	defer s.finish("ModelStreamInfer", &err)
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	ctx := stream.Context()
	s.compress(ctx)
	st := &inferStream{
		server:     s,
		stream:     stream,
		ctx:        ctx,
		grpcErrors: slices.Contains(metadata.ValueFromIncomingContext(ctx, "triton_grpc_error"), "true"),
		room:       newRoom(s.opt.StreamInFlight, streamBytes),
		answers:    make(chan *answer, s.opt.StreamInFlight),
		parts:      make(chan part),
		sequences:  make(map[sequenceKey]*answer),
		unsent:     make(map[*answer]struct{}),
	}
	// The reader may still wait for the client when this returns; the end of
	// the call, which follows, ends it.
	s.wg.Go(st.read)
	defer st.end()
	return st.write()
}

// end frees the answers that were not sent. give frees later ones.
func (st *inferStream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	for a := range st.unsent {
		a.reply.free()
		a.reply = nil
	}
}

// give makes reply the answer a, unless the stream is over.
func (st *inferStream) give(a *answer, reply *encoded) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		reply.free()
		return
	}
	a.reply, a.size = reply, reply.len()
	st.unsent[a] = struct{}{}
}

// take returns the reply of an answer, which the caller must send.
func (st *inferStream) take(a *answer) *encoded {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.unsent, a)
	return a.reply
}

// read starts a goroutine for each request until the client has no more.
func (st *inferStream) read() {
	defer close(st.answers)
	for {
		if st.readErr = st.room.await(st.ctx); st.readErr != nil {
			return
		}
		since := st.server.traceStart()
		m := newMessage()
		if err := st.stream.RecvMsg(m); err != nil {
			m.release()
			if !errors.Is(err, io.EOF) {
				st.readErr = err
			}
			return
		}
		m.access = st.access()
		a := &answer{done: make(chan struct{}), size: m.data.Len()}
		st.room.enter(a.size)
		before := st.follow(m, a)
		queued := make(chan struct{})
		m.req.Entered = func() { close(queued) }
		v, err := st.server.version(m)
		if err == nil && !since.IsZero() {
			st.server.trace(st.ctx, m, since)
		}
		if err == nil && v.Decoupled() {
			st.open.Add(1)
			st.server.wg.Go(func() { st.runDecoupled(m, v, a, before) })
		} else {
			st.answers <- a // has room for each that was let in
			st.server.wg.Go(func() { st.run(m, v, err, a, before) })
		}
		if before != nil {
			continue // it enters when the previous one is answered
		}
		// The next must not enter before it: batches are in the order of the
		// stream.
		select {
		case <-queued:
		case <-a.done:
		case <-st.ctx.Done():
		}
	}
}

// write sends the answers. It returns when all are sent, or the stream must
// end.
func (st *inferStream) write() error {
	var (
		answers = st.answers
		closing = st.server.closing
		head    *answer       // the next answer to send
		done    chan struct{} // closed when it is ready
		ended   error         // why there are no more, once answers is nil
	)
	for {
		if head == nil && answers == nil && st.open.Load() == 0 {
			return ended
		}
		next := answers
		if head != nil {
			next = nil
		}
		select {
		case a, ok := <-next:
			if !ok {
				answers = nil
				if closing != nil {
					ended = st.readErr
				}
				continue
			}
			head, done = a, a.done
		case <-done:
			if err := st.send(st.take(head), head.err); err != nil {
				return err
			}
			st.room.leave(head.size)
			head, done = nil, nil
		case p := <-st.parts:
			if err := st.send(p.reply, p.err); err != nil {
				return err
			}
			if p.last {
				st.open.Add(-1)
				st.room.leave(p.size)
			}
		case <-st.ctx.Done():
			return st.ctx.Err()
		case <-closing: // answer what was read until now
			closing = nil
			if answers != nil {
				answers, ended = st.readSoFar()
			}
		}
	}
}

// readSoFar returns the answers to what was read so far, without those to come,
// and why there are no more.
func (st *inferStream) readSoFar() (chan *answer, error) {
	rest := make(chan *answer, cap(st.answers))
	defer close(rest)
	for {
		select {
		case a, ok := <-st.answers:
			if !ok {
				return rest, st.readErr
			}
			rest <- a
		default:
			return rest, errClosing
		}
	}
}

// send sends one message, or returns the error that ends the stream.
func (st *inferStream) send(reply *encoded, err error) error {
	if err != nil || reply == nil {
		return err
	}
	return st.stream.SendMsg(reply)
}

// run answers one request, once the one that it must follow is answered. err is
// set when there is no version for it.
func (st *inferStream) run(m *message, v *engine.Version, err error, a, before *answer) {
	defer close(a.done)
	defer m.release()
	st.await(before)
	var at infer.Response // the model, once it has run
	var out *encoded
	if err == nil {
		out, err = st.try(m, v, &at)
	}
	if err != nil {
		r := reply{resp: &at, id: m.id}
		if at.Model != "" {
			r.final = finalTrue
		}
		out, a.err = st.failure(m, r, err)
	}
	st.logAccess(m, int64(out.len()), err)
	if m.trace != nil {
		m.trace.Fail(err)
		out = traced(out, m.trace)
	}
	asked := a.size
	st.give(a, out)
	if a.size != asked {
		st.room.turn(asked, a.size)
	}
}

// traced makes an answer end a trace when it is sent. Without an answer the trace ends
// now.
func traced(out *encoded, t *trace.Trace) *encoded {
	if out == nil {
		t.End()
		return nil
	}
	t.Sending()
	out.trace = t
	return out
}

// await waits for the previous answer of a sequence.
func (st *inferStream) await(before *answer) {
	if before == nil {
		return
	}
	select {
	case <-before.done:
	case <-st.ctx.Done():
	}
}

// failure returns the message for m's error with the details in r, or the error
// again when it must end the stream.
func (st *inferStream) failure(m *message, r reply, err error) (*encoded, error) {
	st.server.rejected(st.ctx, m.model, m.version, err)
	if executed := r.resp.Model != ""; executed && st.grpcErrors {
		return nil, err
	}
	st.server.logFault("ModelStreamInfer", err)
	return st.server.encoder.streamError(r, strings.ToValidUTF8(status.Public(err), "\uFFFD")), nil
}

// try runs a request and encodes its response. It stores the model in at when it
// has run.
func (st *inferStream) try(m *message, v *engine.Version, at *infer.Response) (out *encoded, err error) {
	defer catch(&err)
	if err := st.server.fill(st.ctx, m); err != nil {
		return nil, err
	}
	if err := v.Infer(st.ctx, m.req); err != nil {
		if m.req.Outcome == infer.Failed {
			at.Model, at.Version = v.Name(), noVersion
		}
		return nil, err
	}
	return st.server.encoder.stream(reply{resp: &m.req.Response, id: m.id, final: finalTrue}, st.room.bytes.Load())
}
