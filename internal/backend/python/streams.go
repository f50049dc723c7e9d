package python

import (
	"encoding/binary"
	"sync"
	"time"

	"shoal/internal/infer"
)

// streams are the unfinished requests to a decoupled model. Their responses
// come over the socket, at any time and in any order.
type streams struct {
	// cancel tells the worker that a request's client is gone.
	cancel func(key requestKey)
	reader reader // used by the one goroutine that reads the socket

	mu    sync.Mutex // protects the fields below
	live  map[requestKey]*stream
	ended error // why there will be no more responses
}

// A stream is one such request. When the first response comes the request
// belongs to its client again, so what responses need is copied here.
type stream struct {
	to       *infer.Stream
	like     infer.Request // rows and wanted outputs, for the reader
	finished chan struct{}
}

const (
	responseHead  = 20
	responseFinal = 1
	responseEmpty = 2
)

func newStreams(m *loaded) *streams {
	s := &streams{live: make(map[requestKey]*stream)}
	if m != nil {
		s.reader.model, s.reader.limit = m, m.set.maxResult
	}
	return s
}

// add adds the requests of a batch.
func (s *streams) add(sequence uint64, requests []*infer.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, r := range requests {
		if s.ended != nil {
			r.Stream.Finish(s.ended)
			continue
		}
		st := &stream{to: r.Stream, finished: make(chan struct{})}
		st.like.Rows = r.Rows
		for i := range r.Outputs {
			w := r.Outputs[i]
			w.Name = s.reader.model.outputs[s.reader.model.sig.Output(w.Name)].Name // the request's own text does not live long enough
			st.like.Outputs = append(st.like.Outputs, w)
		}
		key := requestKey{sequence, uint32(n)}
		s.live[key] = st
		go s.watch(key, st)
	}
}

// watch tells the worker when a client is gone before its last response.
func (s *streams) watch(key requestKey, st *stream) {
	select {
	case <-st.to.Done():
		s.cancel(key)
	case <-st.finished:
	}
}

// respond passes a message of the worker to its stream. It fails when the
// message cannot be read.
func (s *streams) respond(payload []byte) error {
	if len(payload) < responseHead {
		return wireFault("a response of %d bytes", len(payload))
	}
	key := requestKey{binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint32(payload[8:])}
	flags, size := binary.LittleEndian.Uint32(payload[12:]), binary.LittleEndian.Uint32(payload[16:])
	rest := payload[responseHead:]
	if uint64(size) > uint64(len(rest)) {
		return wireFault("a response with a table of %d bytes in %d", size, len(rest))
	}
	s.mu.Lock()
	st := s.live[key]
	if flags&responseFinal != 0 {
		delete(s.live, key)
	}
	s.mu.Unlock()
	if st == nil {
		return wireFault("a response to request %d of batch %d, which is finished", key.request, key.sequence)
	}
	final := flags&responseFinal != 0
	if final {
		defer close(st.finished)
	}
	if flags&responseEmpty != 0 {
		st.to.Finish(nil)
		return nil
	}
	resp, err := s.read(st, rest[:size], rest[size:])
	if err != nil {
		st.to.Finish(err)
		return err
	}
	_ = st.to.Send(resp, final) // Done reports a client that is gone or slow
	return nil
}

// room answers a model that wants to send more, once the client has read most
// of what was sent, or does not read.
func (l *link) room(payload []byte) error {
	ask, key, err := readQuestion(payload)
	if err != nil {
		return err
	}
	l.streams.mu.Lock()
	st := l.streams.live[key]
	l.streams.mu.Unlock()
	if st == nil {
		return l.reply(ask, 0, nil)
	}
	go func() {
		_ = st.to.WaitWhileRead(patience) // Done reports a client that is gone
		_ = l.reply(ask, 0, nil)          // a worker that is gone need not know
	}()
	return nil
}

// patience is how long a slow client may block a model. Other requests may be
// waiting for the model.
const patience = 10 * time.Second

// read makes a response from a table and the data after it.
func (s *streams) read(st *stream, table, data []byte) (*infer.Response, error) {
	rd, like := &s.reader, &st.like
	like.Err, like.Response = nil, infer.Response{}
	rd.requests, rd.rows = append(rd.requests[:0], like), like.Rows
	rd.table, rd.data = table, data
	if err := rd.answers(1); err != nil {
		return nil, err
	}
	resp := like.Response
	resp.Err = like.Err
	return &resp, nil
}

// end fails all unfinished requests, because the worker is gone.
func (s *streams) end(err error) {
	s.mu.Lock()
	left := s.live
	s.live, s.ended = nil, err
	s.mu.Unlock()
	for _, st := range left {
		st.to.Finish(err)
		close(st.finished)
	}
}
