package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// errWire is wrapped by errors about a worker that violates the protocol: its
// answer is meaningless, and it is ended.
var errWire = errors.New("the worker's answer cannot be read")

func wireFault(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errWire}, args...)...)
}

// A reader parses a result. The worker may have written anything, so each
// number is checked before it is used.
type reader struct {
	model    *loaded
	requests []*infer.Request
	rows     int
	limit    int
	text     *[]byte // where strings are copied to; nil when the data cannot change any more

	data     []byte // where outputs lie
	table    []byte // the unread part
	answered []bool // by request
	left     int    // requests without an answer
	handler  time.Duration
	kept     bool
	dims     tensor.Shape
}

// read gives the requests of a batch their responses and errors. If it fails
// itself, none of them has any.
func (rd *reader) read(s *slot, sequence uint64, requests []*infer.Request, rows int) error {
	rd.requests, rd.rows = requests, rows
	count, err := rd.open(s, sequence)
	if err != nil {
		return err
	}
	return rd.answers(count)
}

// open reads a result's header and returns the number of answers.
func (rd *reader) open(s *slot, sequence uint64) (int, error) {
	head := s.out[:headSize]
	seq, flags, count := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	spent, at, size := binary.LittleEndian.Uint64(head[16:]), binary.LittleEndian.Uint64(head[24:]), binary.LittleEndian.Uint64(head[32:])
	switch {
	case seq != sequence:
		return 0, wireFault("it is for batch %d, want %d", seq, sequence)
	case at < headSize || at > uint64(align(rd.limit)) || size > maxTable:
		return 0, wireFault("its table has %d bytes at %d", size, at)
	}
	if err := s.see(int(at + size)); err != nil {
		return 0, err
	}
	s.usedOut = int(at + size)
	s.table = append(s.table[:0], s.out[at:at+size]...) // it must not change while it is parsed
	s.text = s.text[:0]
	rd.data, rd.table, rd.text = s.out[:at:at], s.table, &s.text
	rd.kept = flags&resultKept != 0
	rd.handler = time.Duration(min(spent, math.MaxInt64))
	return int(min(count, math.MaxInt32)), nil
}

// answers reads count answers, one for each request.
func (rd *reader) answers(count int) (err error) {
	rd.left = len(rd.requests)
	rd.answered = rd.answered[:0]
	for range rd.requests {
		rd.answered = append(rd.answered, false)
	}
	for ; count > 0 && err == nil; count-- {
		err = rd.answer()
	}
	if err == nil && len(rd.table) > 0 {
		err = wireFault("%d bytes behind its last answer", len(rd.table))
	}
	if err == nil && rd.left > 0 {
		err = wireFault("%d of %d requests have no answer", rd.left, len(rd.requests))
	}
	if err != nil {
		for _, r := range rd.requests {
			r.Err = nil
			r.Response.Release()
		}
	}
	return err
}

// next takes n bytes from the table.
func (rd *reader) next(n int) ([]byte, error) {
	if n > len(rd.table) {
		return nil, wireFault("its table ends within a record")
	}
	b := rd.table[:n]
	rd.table = rd.table[n:]
	return b, nil
}

// answer reads one answer: outputs or an error, for one request or for all.
func (rd *reader) answer() error {
	b, err := rd.next(answerSize)
	if err != nil {
		return err
	}
	request, kind, code := binary.LittleEndian.Uint32(b), b[4], b[5]
	outputs, more := int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint32(b[8:]))
	first, last := int(request), int(request)
	if request == allRequests {
		first, last = 0, len(rd.requests)-1
	}
	if last >= len(rd.requests) {
		return wireFault("an answer is for request %d of %d", request, len(rd.requests))
	}
	for i := first; i <= last; i++ {
		if rd.answered[i] {
			return wireFault("request %d is answered twice", i)
		}
		rd.answered[i] = true
		rd.left--
	}
	part := rd.requests[first : last+1]
	if kind == answerError {
		return rd.failure(part, code, more)
	}
	if kind != answerOutputs {
		return wireFault("an answer is of kind %d", kind)
	}
	rows := 0
	for _, r := range part {
		rows += r.Rows
	}
	for range outputs {
		if err := rd.output(part, rows, request != allRequests); err != nil {
			return err
		}
	}
	return rd.params(part, more)
}

// failure fails requests with the handler's text.
func (rd *reader) failure(part []*infer.Request, code byte, size int) error {
	text, err := rd.next(size)
	if err != nil {
		return err
	}
	if code >= byte(status.CodeCount) {
		code = byte(status.Internal)
	}
	fail(part, &status.Error{Code: status.Code(code), Public: string(text)})
	return nil
}

// fail replaces the requests' responses by an error.
func fail(part []*infer.Request, err error) {
	for _, r := range part {
		if r.Err == nil {
			r.Err = err
			r.Response.Release()
		}
	}
}

// params reads count parameters of an answer.
func (rd *reader) params(part []*infer.Request, count int) error {
	for range count {
		head, err := rd.next(paramSize)
		if err != nil {
			return err
		}
		kind := infer.ParamKind(head[0])
		name, err := rd.next(int(binary.LittleEndian.Uint16(head[2:])))
		if err != nil {
			return err
		}
		value, err := rd.next(int(binary.LittleEndian.Uint32(head[4:])))
		if err != nil {
			return err
		}
		p := infer.Param{Name: string(name), Kind: kind}
		switch {
		case kind == infer.ParamString:
			p.String = string(value)
		case kind == infer.ParamInt && len(value) == 8:
			p.Int = int64(binary.LittleEndian.Uint64(value))
		case kind == infer.ParamFloat && len(value) == 8:
			p.Float = math.Float64frombits(binary.LittleEndian.Uint64(value))
		case kind == infer.ParamBool && len(value) == 1:
			p.Bool = value[0] != 0
		default:
			return wireFault("parameter %q is of kind %d with %d bytes", name, kind, len(value))
		}
		for _, r := range part {
			r.Response.Params = append(r.Response.Params, p)
		}
	}
	return nil
}
