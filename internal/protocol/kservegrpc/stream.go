package kservegrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// An inferStream is one ModelStreamInfer call. One goroutine reads requests, one
// per request runs it, and the call's own sends the answers in the order of the
// requests. A slot is taken before a request is read and given back when its
// answer is out, so that a client that does not read is not read from either.
type inferStream struct {
	server *Server
	stream grpc.ServerStream
	ctx    context.Context
	// grpcErrors makes the first execution error end the stream.
	grpcErrors bool

	slots   chan struct{}
	answers chan *answer // in the order of the requests; closed when there are no more
	readErr error        // why, set before answers is closed

	sequences map[sequenceKey]*answer // the reader's own
}

// An answer is what one request of a stream got.
type answer struct {
	done  chan struct{} // closed when the fields below are set
	reply *encoded
	err   error // ends the stream instead of being sent
}

// modelStreamInfer handles a ModelStreamInfer call.
func (s *Server) modelStreamInfer(_ any, stream grpc.ServerStream) (err error) {
	defer s.finish("ModelStreamInfer", &err)
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	s.compress(stream.Context())
	ctx, cancel := beforeDeadline(stream.Context())
	defer cancel()
	st := &inferStream{
		server:     s,
		stream:     stream,
		ctx:        ctx,
		grpcErrors: slices.Contains(metadata.ValueFromIncomingContext(ctx, "triton_grpc_error"), "true"),
		slots:      make(chan struct{}, s.opt.StreamInFlight),
		answers:    make(chan *answer, s.opt.StreamInFlight),
		sequences:  make(map[sequenceKey]*answer),
	}
	// The reader may still wait for the client when this returns; the end of
	// the call, which follows, ends it.
	s.wg.Go(st.read)
	return st.write()
}

// read starts a goroutine for each request until the client has no more.
func (st *inferStream) read() {
	defer close(st.answers)
	for {
		select {
		case st.slots <- struct{}{}:
		case <-st.ctx.Done():
			st.readErr = st.ctx.Err()
			return
		}
		m := newMessage()
		if err := st.stream.RecvMsg(m); err != nil {
			m.release()
			if !errors.Is(err, io.EOF) {
				st.readErr = err
			}
			return
		}
		a := &answer{done: make(chan struct{})}
		before := st.follow(m, a)
		st.answers <- a // has room: there is a slot for each
		queued := make(chan struct{})
		m.req.Entered = func() { close(queued) }
		st.server.wg.Go(func() { st.run(m, a, before) })
		if before != nil {
			continue // it enters when the one before it is answered
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

// write sends the answers. It returns when all are out, or the stream must end.
func (st *inferStream) write() error {
	for {
		select {
		case a, ok := <-st.answers:
			if !ok {
				return st.readErr
			}
			if err := st.send(a); err != nil {
				return err
			}
		case <-st.ctx.Done():
			return st.ctx.Err()
		case <-st.server.closing:
			return st.writeRest()
		}
	}
}

// writeRest sends the answers to what was read before the server began to
// close, and ends the stream.
func (st *inferStream) writeRest() error {
	for {
		select {
		case a, ok := <-st.answers:
			if !ok {
				return st.readErr
			}
			if err := st.send(a); err != nil {
				return err
			}
		default:
			return errClosing
		}
	}
}

// send waits for an answer and sends it.
func (st *inferStream) send(a *answer) error {
	select {
	case <-a.done:
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
	if a.err != nil {
		return a.err
	}
	if err := st.stream.SendMsg(a.reply); err != nil {
		return err
	}
	<-st.slots
	return nil
}

// run answers one request, once the one that it must follow is answered.
func (st *inferStream) run(m *message, a, before *answer) {
	defer close(a.done)
	defer m.release()
	if before != nil {
		select {
		case <-before.done:
		case <-st.ctx.Done():
		}
	}
	a.reply, a.err = st.infer(m)
}

// infer runs a request and returns its answer. The error is one that ends the
// stream.
func (st *inferStream) infer(m *message) (*encoded, error) {
	var at infer.Response // the model and version, once the request is with them
	out, err := st.try(m, &at)
	if err == nil {
		return out, nil
	}
	if executed := at.Model != ""; executed && st.grpcErrors {
		return nil, err
	}
	st.server.logFault("ModelStreamInfer", err)
	text := strings.ToValidUTF8(status.Public(err), "\uFFFD")
	return encodeStreamError(reply{resp: &at, id: m.id}, text), nil
}

// try runs a request and encodes its response. It says in at how far it came.
func (st *inferStream) try(m *message, at *infer.Response) (out *encoded, err error) {
	defer catch(&err)
	v, err := st.server.version(m)
	if err != nil {
		return nil, err
	}
	if err := st.server.fill(st.ctx, m); err != nil {
		return nil, err
	}
	if err := v.Infer(st.ctx, m.req); err != nil {
		if !m.req.Queued.IsZero() {
			at.Model, at.Version = v.Name(), v.Number()
		}
		return nil, err
	}
	return encodeStream(reply{resp: &m.req.Response, id: m.id, final: true}, st.server.opt.MaxMessage)
}

// A sequenceKey names a sequence of requests, which must run one by one.
type sequenceKey struct {
	model, id string
	number    int64
}

// follow returns the answer that the request of m must wait for: that of the
// request before it in its sequence, nil when there is none.
func (st *inferStream) follow(m *message, a *answer) *answer {
	i, ok := find(m.params, nil, "sequence_id")
	if !ok {
		return nil
	}
	p := &m.params[i]
	if len(st.sequences) > 2*cap(st.slots) {
		st.forget()
	}
	// The message's strings go back with it; the key stays.
	key := sequenceKey{model: strings.Clone(m.model), id: strings.Clone(p.String), number: p.Int}
	before := st.sequences[key]
	st.sequences[key] = a
	return before
}

// forget drops the sequences that have nothing in flight.
func (st *inferStream) forget() {
	for key, a := range st.sequences {
		select {
		case <-a.done:
			delete(st.sequences, key)
		default:
		}
	}
}
