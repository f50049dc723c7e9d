package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// flowWindow lets an answer of a large tensor come without waiting for the
// client's leave, which would cost both sides frames and wake-ups.
const flowWindow = 4 << 20

// GRPC is a target that calls ModelInfer through grpc-go, several callers to a
// connection. Messages are encoded once and answers are not decoded.
type GRPC struct {
	address string
	request mem.Buffer
	check   func(message []byte) error
}

// NewGRPC returns a target that sends request, an encoded ModelInferRequest, to
// address ("host:port"). Check looks at the encoded ModelInferResponse of each
// caller's first answer, which it may not keep; it may be nil.
func NewGRPC(address string, request []byte, check func(message []byte) error) *GRPC {
	if check == nil {
		check = func([]byte) error { return nil }
	}
	return &GRPC{address: address, request: mem.SliceBuffer(request), check: check}
}

// Open connects n callers: over one connection while they are few, two up to 16
// and then one more for each 16, as clients that pool their connections do.
func (t *GRPC) Open(_ context.Context, n int) ([]Caller, error) {
	conns := make([]*grpcCaller, connections(n))
	for i := range conns {
		conn, err := t.dial()
		if err != nil {
			for _, c := range conns[:i] {
				err = errors.Join(err, c.Close())
			}
			return nil, fmt.Errorf("%w: %w", errConnect, err)
		}
		conns[i] = &grpcCaller{target: t, conn: conn, close: sync.OnceValue(conn.Close)}
	}
	// A caller has no state of its own beside its connection.
	callers := make([]Caller, n)
	for i := range callers {
		callers[i] = conns[i%len(conns)]
	}
	return callers, nil
}

// connections returns how many connections n callers share.
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
func (t *GRPC) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+t.address,
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

// A grpcCaller calls over one connection, which others share.
type grpcCaller struct {
	target *GRPC
	conn   *grpc.ClientConn
	close  func() error
}

// First makes one request and checks the answer.
func (c *grpcCaller) First(ctx context.Context) error {
	r := reply{keep: true}
	if err := c.invoke(ctx, &r); err != nil {
		return err
	}
	return c.target.check(r.message)
}

// Do makes one request and drops the answer.
func (c *grpcCaller) Do(ctx context.Context) error { return c.invoke(ctx, &reply{}) }

func (c *grpcCaller) invoke(ctx context.Context, r *reply) error {
	return c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, c.target.request, r)
}

// Close ends the connection and with it all that its callers have under way.
func (c *grpcCaller) Close() error { return c.close() }

// A reply takes an answer's bytes when they are wanted.
type reply struct {
	keep    bool
	message []byte
}

// rawCodec passes encoded messages through as they are: a request is a
// mem.Buffer, an answer a *reply.
type rawCodec struct{}

// Marshal wraps the request's bytes without copying them.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(mem.Buffer)
	if !ok {
		return nil, fmt.Errorf("BUG: a request of type %T", v)
	}
	return mem.BufferSlice{b}, nil
}

// Unmarshal copies the answer when it is wanted.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reply)
	if !ok {
		return fmt.Errorf("BUG: an answer of type %T", v)
	}
	if r.keep {
		r.message = data.Materialize()
	}
	return nil
}

// Name makes the content type that of ordinary protobuf messages.
func (rawCodec) Name() string { return "proto" }
