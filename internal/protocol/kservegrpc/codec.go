package kservegrpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"shoal/internal/inflight"
)

// codec is what the server reads and writes messages with: the standard one,
// except for inference requests, which keep the memory that they were received
// in, and for answers that are encoded already.
type codec struct {
	encoding.CodecV2
	budget *inflight.Budget // what requests take besides the memory they arrived in
}

func newCodec(b *inflight.Budget) codec { return codec{encoding.GetCodecV2(proto.Name), b} }

// Unmarshal reads v from data. A *message takes references to data of its own.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		return m.decode(data, c.budget)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal returns the bytes of v, which the caller frees.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return e.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}
