package load

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// A streamConn sends requests over a stream of its own, one at a time. The stream
// is opened for the first exchange and again after an error.
type streamConn struct {
	*grpcConn
	stream grpc.ClientStream

	mu     sync.Mutex // protects the fields below
	end    context.CancelFunc
	closed bool
}

func newStreamConn(over *grpcConn) *streamConn { return &streamConn{grpcConn: over} }

var streamDesc = grpc.StreamDesc{StreamName: "ModelStreamInfer", ServerStreams: true, ClientStreams: true}

func (c *streamConn) open() error {
	// The stream outlives the exchange that opened it: Close ends it.
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		cancel()
		return status.Error(codes.Canceled, "the connection is closed")
	}
	stream, err := c.conn.NewStream(c.link.context(ctx), &streamDesc, inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	if err != nil {
		cancel()
		return err
	}
	c.stream, c.end = stream, cancel
	return nil
}

// drop gives up a stream that cannot be used again.
func (c *streamConn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.stream = nil
}

// Do sends a request and waits for its last answer.
func (c *streamConn) Do(_ context.Context, m *Message, x *Exchange) error {
	x.begin()
	err := c.exchange(m, x)
	x.Done = Now()
	return err
}

func (c *streamConn) exchange(m *Message, x *Exchange) error {
	if c.stream == nil {
		if err := c.open(); err != nil {
			return err
		}
	}
	c.call = call{message: m, x: x}
	if err := c.stream.SendMsg(&c.call); err != nil {
		// The reason of a failed send is what receiving says.
		if why := c.stream.RecvMsg(&reply{}); why != nil {
			err = why
		}
		c.drop()
		return err
	}
	for {
		var a streamAnswer
		if err := c.stream.RecvMsg(&streamReply{x: x, answer: &a}); err != nil {
			c.drop()
			return err
		}
		if a.fault != "" {
			return status.Error(codes.Unknown, a.fault)
		}
		if !a.empty {
			x.Arrivals = append(x.Arrivals, Now())
		}
		if !c.link.options.Decoupled || a.final {
			return nil
		}
	}
}

// Close ends the stream, and the connection that it shares with others.
func (c *streamConn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.end != nil {
		c.end()
	}
	c.mu.Unlock()
	return c.grpcConn.Close()
}

// A streamReply is an answer on a stream.
type streamReply struct {
	x      *Exchange
	answer *streamAnswer
}

func (r *streamReply) take(data mem.BufferSlice) error {
	if r.x.First == 0 {
		r.x.First = Now()
	}
	b := data.Materialize()
	a, inner, err := parseStreamAnswer(b)
	if err != nil {
		return err
	}
	*r.answer = a
	if r.x.Keep && !a.empty {
		r.x.Answer = append(r.x.Answer[:0], inner...)
	}
	return nil
}

// A streamAnswer is what must be known of a ModelStreamInferResponse.
type streamAnswer struct {
	fault string // the error that it is, if it is one
	final bool   // the last answer to its request
	empty bool   // there are no outputs: it says only that it is the last
}

// The fields of the protocol's messages that are looked at.
const (
	fieldFault      = 1 // of ModelStreamInferResponse
	fieldAnswer     = 2
	fieldParameters = 4 // of ModelInferResponse
	fieldOutputs    = 5
	fieldKey        = 1 // of a map's entry
	fieldValue      = 2
	fieldBool       = 1 // of InferParameter
)

const finalParameter = "triton_final_response"

// parseStreamAnswer looks into an encoded ModelStreamInferResponse, and returns
// the ModelInferResponse inside.
func parseStreamAnswer(b []byte) (a streamAnswer, inner []byte, err error) {
	err = eachField(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldFault:
			a.fault = string(v)
		case fieldAnswer:
			inner = v
		}
		return nil
	})
	if err != nil {
		return a, nil, err
	}
	a.empty = true
	err = eachField(inner, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldOutputs:
			a.empty = false
		case fieldParameters:
			final, err := isFinal(v)
			a.final = a.final || final
			return err
		}
		return nil
	})
	a.empty = a.empty && a.final
	return a, inner, err
}

// isFinal says whether an entry of the parameters marks the last answer.
func isFinal(entry []byte) (bool, error) {
	named, set := false, false
	err := eachField(entry, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldKey:
			named = string(v) == finalParameter
		case fieldValue:
			for len(v) > 0 {
				n, t, size := protowire.ConsumeTag(v)
				if size < 0 {
					return protowire.ParseError(size)
				}
				if v = v[size:]; n == fieldBool && t == protowire.VarintType {
					b, _ := protowire.ConsumeVarint(v)
					set = b != 0
				}
				if size = protowire.ConsumeFieldValue(n, t, v); size < 0 {
					return protowire.ParseError(size)
				}
				v = v[size:]
			}
		}
		return nil
	})
	return named && set, err
}

// eachField calls do with every field of a message that has a length.
func eachField(b []byte, do func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%w: %w", errProtocol, protowire.ParseError(size))
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, t, b); size < 0 {
			return fmt.Errorf("%w: %w", errProtocol, protowire.ParseError(size))
		}
		if t == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := do(n, v); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
