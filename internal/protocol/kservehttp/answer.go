package kservehttp

import (
	"io"
	"sync"

	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/protocol/compression"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/trace"
)

// An inferAnswer is an inference request in the handler and the body of its
// answer, which the server reads after the handler has returned. Binary outputs
// go from the model's memory to the socket without a copy; the request is held
// until then.
type inferAnswer struct {
	body      *httpserver.Body
	request   *infer.Request
	trace     *trace.Trace // nil when the request is not traced
	allBinary bool

	memory *inflight.Pool
	kept   []byte           // memory for small answers
	large  *httpserver.Body // memory for others; nil when there is none
	claim  inflight.Claim   // what the answer uses in addition

	json   []byte // the JSON part of the answer, or all of it when packed
	binary int    // the bytes of the outputs that follow it
	coding compression.Format
	length int // of the JSON part, for the header; 0 when there is nothing else
}

var answers = sync.Pool{New: func() any { return new(inferAnswer) }}

// newAnswer returns an answer with an empty request that holds lease.
func newAnswer(memory *inflight.Pool, lease infer.Releaser) *inferAnswer {
	a := answers.Get().(*inferAnswer)
	a.memory, a.claim = memory, memory.Budget().Claim()
	a.request = infer.NewRequest()
	a.request.Hold(lease)
	a.request.Claim = memory.Budget().Claim()
	return a
}

// letGo releases the request and its body.
func (a *inferAnswer) letGo() {
	if a.request != nil {
		a.request.Release()
		a.request = nil
	}
	if a.body != nil {
		a.body.Release()
		a.body = nil
	}
}

// release releases everything.
func (a *inferAnswer) release() {
	a.letGo()
	if a.large != nil {
		a.large.Release()
	}
	a.claim.Release()
	a.trace.End()
	kept := a.kept[:0]
	if cap(kept) > smallJSON {
		kept = nil
	}
	*a = inferAnswer{kept: kept}
	answers.Put(a)
}

// smallJSON is the largest answer that is made in the inferAnswer's own memory.
const smallJSON = 64 << 10

// encode encodes the request's response. It fails when the memory budget has no
// room for it.
func (a *inferAnswer) encode() error {
	room := a.kept[:0]
	if n := jsonSize(a.request, a.allBinary); n > smallJSON {
		a.large = httpserver.NewBody(a.memory)
		if err := a.large.Grow(n); err != nil {
			return err
		}
		room = a.large.B
	}
	var err error
	if a.json, a.binary, err = appendResponse(room, a.request, a.allBinary); err != nil {
		return err
	}
	extra := a.binary // in the instance's memory until it is written
	if a.large == nil {
		a.kept = a.json
	}
	if a.large == nil || cap(a.json) > cap(room) {
		extra += cap(a.json)
	}
	if err := a.claim.Acquire(int64(extra)); err != nil {
		return err
	}
	if a.binary > 0 {
		a.length = len(a.json)
	} else {
		a.letGo()
	}
	return nil
}

// compress compresses the answer.
func (a *inferAnswer) compress(enc compression.Format) error {
	if enc == compression.Identity {
		return nil
	}
	packed, err := httpserver.Compress(a, enc, a.memory)
	if err != nil {
		return err
	}
	a.letGo()
	a.claim.Release()
	if a.large != nil {
		a.large.Release()
	}
	a.large, a.json = packed, packed.B
	a.binary, a.coding = 0, enc
	return nil
}

// send passes the answer to the server, which closes it when it is written.
func (a *inferAnswer) send(x *httpserver.Exchange) {
	a.trace.Sending()
	if a.coding != compression.Identity {
		x.SetHeader("Content-Encoding", a.coding.String())
	}
	if a.length > 0 {
		x.SetType(bytesType)
		x.SetHeaderInt(headerLength, a.length)
	} else {
		x.SetType(jsonType)
	}
	x.SetStream(a, len(a.json)+a.binary)
}

// WriteTo implements io.WriterTo.
func (a *inferAnswer) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(a.json)
	if err != nil || a.binary == 0 {
		return int64(n), err
	}
	outs := a.request.Response.Outputs
	for i := range outs {
		if !isBinary(a.request, &outs[i], a.allBinary) {
			continue
		}
		m, err := w.Write(outs[i].Data)
		if n += m; err != nil {
			return int64(n), err
		}
	}
	return int64(n), nil
}

// Close implements io.Closer.
func (a *inferAnswer) Close() error {
	a.release()
	return nil
}
