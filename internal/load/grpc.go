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

	"shoal/internal/client"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// flowWindow lets a large answer come without waiting for window updates, which
// would cost both sides frames and wake-ups.
const flowWindow = 4 << 20

// A GRPCLink calls the inference service through grpc-go. Several of its
// connections share a network connection, as in programs that use grpc-go.
// Messages are not decoded. [H2Link] is cheaper.
type GRPCLink struct{ address string }

// NewGRPCLink returns a link to address ("host:port").
func NewGRPCLink(address string) *GRPCLink { return &GRPCLink{address} }

// Message returns an encoded ModelInferRequest as a message.
func (l *GRPCLink) Message(request []byte) *Message {
	return &Message{buffer: mem.SliceBuffer(request)}
}

// Conns returns n connections. They share one network connection up to 4, two up
// to 16, and one for each 16 beyond that, as client pools do.
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
		// Each has its own request; they share the connection.
		own := *shared[i%len(shared)]
		conns[i] = &own
	}
	return conns, nil
}

// connections returns how many network connections n of ours share.
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

// dial makes a connection that only carries calls: no name resolution, no
// service configuration, no buffering for retries.
func (l *GRPCLink) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(client.Target(l.address),
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
	conn    *grpc.ClientConn
	close   func() error
	request outgoing
}

// Connect waits until the connection is made or has failed.
func (c *grpcConn) Connect(ctx context.Context) error {
	c.conn.Connect()
	for {
		switch s := c.conn.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			// The state does not have the cause; a call returns it.
			err := c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ServerLive_FullMethodName, &outgoing{message: &Message{buffer: mem.SliceBuffer(nil)}}, &reply{})
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

// PollIdle does nothing: grpc-go has goroutines that read.
func (c *grpcConn) PollIdle() {}

// Do makes one call.
func (c *grpcConn) Do(ctx context.Context, m *Message, x *Exchange) error {
	x.begin()
	c.request = outgoing{message: m, x: x}
	err := c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, &c.request, &reply{x: x})
	x.Done = Now()
	return err
}

// Close ends the connection and everything in flight on it.
func (c *grpcConn) Close() error { return c.close() }

// An outgoing is a request that grpc-go encodes.
type outgoing struct {
	message *Message
	x       *Exchange // nil: do not record when it was sent
}

// A reply is an answer that grpc-go decodes.
type reply struct {
	x *Exchange
}

// rawCodec passes encoded messages through: a request is an *outgoing, an
// answer a *reply.
type rawCodec struct{}

// Marshal wraps the request's bytes without copying them.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*outgoing)
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

// Name gives messages the content type of protobuf.
func (rawCodec) Name() string { return "proto" }
