package modelstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A request for a handler is one row of a BYTES tensor, packed so that it can go
// through scheduler and worker as any tensor does, and so is its answer. Numbers
// are little-endian; shoal/_archive_rows.py is the other side.
//
//	request: magic, u16 bytes of the id, u16 headers, u16 parts, u16 reserved, u32 bytes of the headers, id,
//	         (u16, u32 bytes, name, value) of each header,
//	         (u32, u16, u16 bytes of value, name and content type, name, content type, value) of each part
//	answer:  magic, u8 kind, u16 status, u16 bytes of the phrase, u16 headers, phrase,
//	         (u16, u32 bytes, name, value) of each header, body

// magic begins packed rows. A row of a KServe client does not begin with it, and
// goes to the handler as its body.
const magic = "\x00SHOAL\x02\n"

// A Header is a header of a request or an answer.
type Header struct{ Name, Value []byte }

// A Part is a part of a request's body, or the body itself.
type Part struct {
	Name, Type string
	Value      []byte
}

// The kinds of answers.
const (
	AnswerWhole = iota // the answer, or its last part
	AnswerError        // an error in place of an answer; the body is its text
	AnswerPart         // a part that others follow
)

// An Answer is a handler's answer. Its slices alias the packed row.
type Answer struct {
	Kind    int
	Status  int
	Phrase  []byte
	Headers []Header
	Body    []byte
}

var errPacked = errors.New("BUG: a worker's answer is not packed as it should be")

// Pack makes the packed request the input of r.
func Pack(r *infer.Request, id string, headers []Header, parts []Part) error {
	block := 0
	for _, h := range headers {
		block += 6 + len(h.Name) + len(h.Value)
	}
	size := len(magic) + 12 + len(id) + block
	for _, p := range parts {
		size += 8 + len(p.Name) + len(p.Type) + len(p.Value)
		if len(p.Name) > 0xffff || len(p.Type) > 0xffff {
			return errorf(400, kindBadRequest, "a part's name or content type has more than %d bytes", 0xffff)
		}
	}
	if len(parts) > 0xffff || len(headers) > 0xffff {
		return errorf(400, kindBadRequest, "the request has more than %d parts", 0xffff)
	}
	room, err := r.GrowWithin(4 + size)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	b := le.AppendUint32(room[:0], uint32(size))
	b = append(b, magic...)
	b = le.AppendUint16(b, uint16(len(id)))
	b = le.AppendUint16(b, uint16(len(headers)))
	b = le.AppendUint16(b, uint16(len(parts)))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(block))
	b = append(b, id...)
	for _, h := range headers {
		b = le.AppendUint16(b, uint16(len(h.Name)))
		b = le.AppendUint32(b, uint32(len(h.Value)))
		b = append(append(b, h.Name...), h.Value...)
	}
	for _, p := range parts {
		b = le.AppendUint32(b, uint32(len(p.Value)))
		b = le.AppendUint16(b, uint16(len(p.Name)))
		b = le.AppendUint16(b, uint16(len(p.Type)))
		b = append(append(append(b, p.Name...), p.Type...), p.Value...)
	}
	if len(b) != 4+size {
		panic(fmt.Sprintf("BUG: modelstore: %d bytes packed, %d expected", len(b), 4+size))
	}
	in := r.AddInput()
	in.Name, in.Type, in.Data = Input, tensor.Bytes, infer.Data{First: b}
	in.Shape = append(r.Dims(2), 1, 1)
	return nil
}

// Unpack returns the answer in a response.
func Unpack(resp *infer.Response) (Answer, error) {
	if len(resp.Outputs) != 1 || len(resp.Outputs[0].Data) < 4 {
		return Answer{}, errPacked
	}
	return parseAnswer(resp.Outputs[0].Data[4:])
}

func parseAnswer(b []byte) (a Answer, err error) {
	if len(b) < len(magic)+7 || string(b[:len(magic)]) != magic {
		return a, errPacked
	}
	le := binary.LittleEndian
	b = b[len(magic):]
	a.Kind, a.Status = int(b[0]), int(le.Uint16(b[1:]))
	phrase, headers := int(le.Uint16(b[3:])), int(le.Uint16(b[5:]))
	b = b[7:]
	if len(b) < phrase {
		return a, errPacked
	}
	a.Phrase, b = b[:phrase], b[phrase:]
	for range headers {
		if len(b) < 6 {
			return a, errPacked
		}
		n, v := int(le.Uint16(b)), int(le.Uint32(b[2:]))
		b = b[6:]
		if len(b) < n+v {
			return a, errPacked
		}
		a.Headers = append(a.Headers, Header{b[:n], b[n : n+v]})
		b = b[n+v:]
	}
	a.Body = b
	return a, nil
}

// Acquire returns a lease on a version's model in the engine. It waits for the first
// workers while they are being started. Version is the one that the client named, if
// it named one.
func (s *Store) Acquire(ctx context.Context, v *Version, version string) (infer.Releaser, *Running, error) {
	if !v.HasWorkers() {
		return nil, nil, s.NoWorker(v.name, version)
	}
	lease, err := s.opt.Engine.Acquire(v.served, infer.LatestVersion)
	if err != nil && v.await(ctx) {
		lease, err = s.opt.Engine.Acquire(v.served, infer.LatestVersion)
	}
	if err != nil {
		return nil, nil, s.NoWorker(v.name, version).because(err)
	}
	return lease, &Running{lease.Version, s, v, version}, nil
}

// Fault returns the client's error of a request that the engine ran or refused.
func (r *Running) Fault(q *infer.Request, err error) error {
	code := status.CodeOf(err)
	switch {
	case errors.As(err, new(*Error)):
		return err
	case q.Outcome == infer.Refused, code == status.Unavailable, code == status.ResourceExhausted, code == status.Cancelled:
		return r.store.NoWorker(r.v.name, r.version).because(err)
	}
	return WorkerDied().because(err)
}

// A Running is a version's model in the engine, while a lease is held.
type Running struct {
	*engine.Version
	store   *Store
	v       *Version
	version string
}
