package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// flowWindow lets an answer of a large tensor come without waiting for the
// client's leave, which would cost both sides frames and wake-ups.
const flowWindow = 4 << 20

// A GRPCLink calls the inference service through grpc-go, several connections of
// ours to one of the network's, as programs that use it do. Messages are not
// decoded. [H2Link] is cheaper.
type GRPCLink struct{ address string }

// NewGRPCLink returns a link to address ("host:port").
func NewGRPCLink(address string) *GRPCLink { return &GRPCLink{address} }

// Message returns an encoded ModelInferRequest as a message.
func (l *GRPCLink) Message(request []byte) *Message {
	return &Message{buffer: mem.SliceBuffer(request)}
}

// Conns returns n connections: over one of the network's while they are few, two
// up to 16 and then one more for each 16, as clients that pool do.
func (l *GRPCLink) Conns(n int) ([]Conn, error) {
	shared := make([]*grpcConn, connections(n))
	for i := range shared {
		conn, err := l.dial()
		if err != nil {
			for _, c := range shared[:i] {
				err = errors.Join(err, c.Close())
			}
			return nil, fmt.Errorf("%w: %w", errConnect, err)
		}
		shared[i] = &grpcConn{conn: conn, close: sync.OnceValue(conn.Close)}
	}
	conns := make([]Conn, n)
	for i := range conns {
		// Each has its own call; they share what it is made over.
		own := *shared[i%len(shared)]
		conns[i] = &own
	}
	return conns, nil
}

// connections returns how many connections of the network n of ours share.
func connections(n int) int {
	switch {
	case n <= 4:
		return 1
	case n <= 16:
		return 2
	default:
		return (n + 15) / 16
	}
}

// dial makes a connection that does nothing beyond carrying calls: no name
// resolution, no service configuration, no buffering for retries.
func (l *GRPCLink) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+l.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(flowWindow),
		grpc.WithInitialConnWindowSize(flowWindow),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32)))
}

// A grpcConn makes unary calls over a connection that others share.
type grpcConn struct {
	conn  *grpc.ClientConn
	close func() error
	call  call
}

// Connect waits until the connection is made or cannot be.
func (c *grpcConn) Connect(ctx context.Context) error {
	c.conn.Connect()
	for {
		switch s := c.conn.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			// The state does not say why; a call does.
			err := c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ServerLive_FullMethodName, &call{message: &Message{buffer: mem.SliceBuffer(nil)}}, &reply{})
			if err == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", errConnect, err)
		default:
			if !c.conn.WaitForStateChange(ctx, s) {
				return fmt.Errorf("%w: %w", errConnect, ctx.Err())
			}
		}
	}
}

// Tend does nothing: grpc-go has goroutines that listen.
func (c *grpcConn) Tend() {}

// Do makes one call.
func (c *grpcConn) Do(ctx context.Context, m *Message, x *Exchange) error {
	x.begin()
	c.call = call{message: m, x: x}
	err := c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, &c.call, &reply{x: x})
	x.Done = Now()
	return err
}

// Close ends the connection and with it all that others have under way over it.
func (c *grpcConn) Close() error { return c.close() }

// A call is a message on its way out.
type call struct {
	message *Message
	x       *Exchange // nil: nobody wants to know when
}

// A reply is an answer on its way in.
type reply struct {
	x *Exchange
}

// rawCodec passes encoded messages through as they are: a request is a *call, an
// answer a *reply.
type rawCodec struct{}

// Marshal wraps the request's bytes without copying them.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*call)
	if !ok {
		return nil, fmt.Errorf("BUG: a request of type %T", v)
	}
	if c.x != nil {
		c.x.Sent = Now()
	}
	return mem.BufferSlice{c.message.buffer}, nil
}

// Unmarshal copies the answer when it is wanted.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reply)
	if !ok {
		return fmt.Errorf("BUG: an answer of type %T", v)
	}
	if r.x == nil {
		return nil
	}
	if r.x.First == 0 {
		r.x.First = Now()
	}
	if r.x.Keep {
		r.x.Answer = append(r.x.Answer[:0], data.Materialize()...)
	}
	return nil
}

// Name makes the content type that of ordinary protobuf messages.
func (rawCodec) Name() string { return "proto" }
