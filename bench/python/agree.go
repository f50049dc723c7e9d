package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// An agreement makes sure that what is measured is an inference: the first answer
// to each caller has the same numbers, whichever server it comes from.
type agreement struct {
	mu   sync.Mutex // protects the field below
	want []float32  // what the first server answered
}

// tolerance is how far servers may differ, relative to the largest number: a sum
// depends on its order, and the order on the batch.
const tolerance = 1e-4

// raw takes an answer that is the numbers alone.
func (a *agreement) raw(body []byte) error {
	if len(body) != 4*answerWidth {
		return fmt.Errorf("the answer has %d bytes, want %d: %.200q", len(body), 4*answerWidth, body)
	}
	got := make([]float32, answerWidth)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.want == nil {
		a.want = got
	}
	return near(got, a.want)
}

// binary takes an answer with the numbers behind its JSON.
func (a *agreement) binary(body []byte) error {
	at := len(body) - 4*answerWidth
	if at < 1 || body[at-1] != '}' {
		return fmt.Errorf("the answer does not end with %d numbers: %d bytes, %.200q", answerWidth, len(body), body)
	}
	return a.raw(body[at:])
}

// grpc takes an encoded answer with raw contents.
func (a *agreement) grpc(message []byte) error {
	var r inferencepb.ModelInferResponse
	if err := proto.Unmarshal(message, &r); err != nil {
		return err
	}
	if len(r.RawOutputContents) != 1 {
		return fmt.Errorf("the answer has %d raw contents, want 1", len(r.RawOutputContents))
	}
	return a.raw(r.RawOutputContents[0])
}

// near says where two answers differ. Numbers that are all zero are no inference.
func near(got, want []float32) error {
	most := 0.0
	for _, v := range want {
		most = max(most, math.Abs(float64(v)))
	}
	if most == 0 || math.IsNaN(most) || math.IsInf(most, 0) {
		return fmt.Errorf("the answer is %v, which is no model's", want)
	}
	for i := range got {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= tolerance*most) {
			return fmt.Errorf("number %d of the answer is %v, another server's was %v", i, got[i], want[i])
		}
	}
	return nil
}
