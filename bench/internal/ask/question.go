package ask

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrWrong is the error of an answer that came and is not what it must be.
var ErrWrong = errors.New("wrong answer")

// A RefusedError is an answer over HTTP with another status than 200.
type RefusedError struct {
	Status int
	Text   string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Status, e.Text) }

// A Question is one row for a model. Its number makes its values.
type Question struct {
	Model  Model
	Number uint32
}

// ID returns the request's id.
func (q Question) ID() string { return strconv.FormatUint(uint64(q.Number), 10) }

// value returns element i: a whole number that FP32 holds exactly, even with
// what the model adds. The first ones differ from question to question, the
// others from element to element.
func (q Question) value(i int) float32 {
	return float32((uint64(q.Number)*2654435761 + uint64(i)*40503) % (1 << 20))
}

// raw returns the input as little-endian bytes.
func (q Question) raw() []byte {
	b := make([]byte, 0, 4*q.Model.Width)
	for i := range q.Model.Width {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(q.value(i)))
	}
	return b
}

// numbers returns the input as JSON numbers.
func (q Question) numbers() []float32 {
	list := make([]float32, q.Model.Width)
	for i := range list {
		list[i] = q.value(i)
	}
	return list
}

// checkRaw compares an output in little-endian bytes with what it must be.
func (q Question) checkRaw(id string, b []byte) error {
	if len(b) != 4*q.Model.Width {
		return fmt.Errorf("%w: model %s: got %d bytes, want %d", ErrWrong, q.Model.Name, len(b), 4*q.Model.Width)
	}
	return q.check(id, q.Model.Width, func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) })
}

func (q Question) check(id string, n int, got func(int) float32) error {
	if id != q.ID() {
		return fmt.Errorf("%w: model %s: got the answer to request %q, want %q", ErrWrong, q.Model.Name, id, q.ID())
	}
	if n != q.Model.Width {
		return fmt.Errorf("%w: model %s: got %d elements, want %d", ErrWrong, q.Model.Name, n, q.Model.Width)
	}
	for i := range n {
		if want := q.value(i) + q.Model.Add; got(i) != want {
			return fmt.Errorf("%w: model %s, request %s: element %d is %v, want %v", ErrWrong, q.Model.Name, id, i, got(i), want)
		}
	}
	return nil
}
