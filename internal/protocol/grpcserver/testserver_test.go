package grpcserver

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // so that it is known
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"shoal/internal/inflight"
)

// testTimeout is how long a test waits for what must happen soon.
const testTimeout = 20 * time.Second

// An echo is the service of the tests.
type echo struct {
	entered chan context.Context // of Wait
	release chan struct{}        // ends Wait; may be closed
}

func newEcho() *echo {
	return &echo{entered: make(chan context.Context, 1000), release: make(chan struct{})}
}

// unary returns a handler of messages.
func unary(f func(e *echo, ctx context.Context, in []byte) ([]byte, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := read(in); err != nil {
			return nil, err
		}
		out, err := f(srv.(*echo), ctx, in.GetValue())
		if err != nil {
			return nil, err
		}
		return wrapperspb.Bytes(out), nil
	}
}

var echoDesc = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Say", Handler: unary(func(_ *echo, _ context.Context, in []byte) ([]byte, error) { return in, nil })},
		{MethodName: "Fail", Handler: unary(func(_ *echo, _ context.Context, in []byte) ([]byte, error) {
			return nil, status.Error(codes.NotFound, string(in))
		})},
		{MethodName: "Panic", Handler: unary(func(*echo, context.Context, []byte) ([]byte, error) { panic("broken") })},
		{MethodName: "Wait", Handler: unary((*echo).wait)},
		{MethodName: "Headers", Handler: unary((*echo).headers)},
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Chat", Handler: chat, ClientStreams: true, ServerStreams: true},
		{StreamName: "Count", Handler: count, ServerStreams: true},
	},
}

// wait answers when the test lets it, or fails with its context.
func (e *echo) wait(ctx context.Context, in []byte) ([]byte, error) {
	select {
	case e.entered <- ctx:
	default: // nobody looks
	}
	select {
	case <-e.release:
		return in, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// headers sends the client's metadata back, as header and as trailer.
func (e *echo) headers(ctx context.Context, _ []byte) ([]byte, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	p, ok := peer.FromContext(ctx)
	method, _ := grpc.Method(ctx)
	if !ok || p.Addr == nil {
		return nil, errors.New("no peer")
	}
	if err := grpc.SetHeader(ctx, metadata.MD{"a": md["a"], "b-bin": md["b-bin"]}); err != nil {
		return nil, err
	}
	return []byte(method), grpc.SetTrailer(ctx, metadata.MD{"c": md["a"]})
}

// chat sends each message back until there are no more.
func chat(_ any, stream grpc.ServerStream) error {
	for {
		m := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

// count answers with as many messages as the request has bytes.
func count(_ any, stream grpc.ServerStream) error {
	m := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(m); err != nil {
		return err
	}
	for range m.GetValue() {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

type testServer struct {
	*Server
	echo *echo
	addr net.Addr
	conn *grpc.ClientConn
}

// start serves the test service on loopback.
func start(tb testing.TB, opt Options) *testServer {
	tb.Helper()
	return startWith(tb, opt)
}

// startWith is start, with more services.
func startWith(tb testing.TB, opt Options, more ...*grpc.ServiceDesc) *testServer {
	tb.Helper()
	if opt.MaxReceive == 0 {
		opt.MaxReceive = 64 << 20
	}
	if opt.MaxSend == 0 {
		opt.MaxSend = 64 << 20
	}
	if opt.Memory == nil {
		opt.Memory = inflight.NewPool(inflight.New(1<<40, 0))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &testServer{Server: New(opt), echo: newEcho(), addr: l.Addr()}
	s.RegisterService(&echoDesc, s.echo)
	for _, desc := range more {
		s.RegisterService(desc, s.echo)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	s.conn = s.dial(tb)
	tb.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			tb.Errorf("got %v from Serve, want nil", err)
		}
		if n := opt.Memory.Budget().Used(); n != 0 {
			tb.Errorf("got %d bytes still claimed after the server has stopped, want none", n)
		}
	})
	return s
}

func (s *testServer) dial(tb testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(128<<20), grpc.MaxCallSendMsgSize(128<<20)),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+s.addr.String(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call makes one call and returns the answer.
func call1(ctx context.Context, conn *grpc.ClientConn, method string, in []byte, opts ...grpc.CallOption) ([]byte, error) {
	out := new(wrapperspb.BytesValue)
	err := conn.Invoke(ctx, "/test.Echo/"+method, wrapperspb.Bytes(in), out, opts...)
	return out.GetValue(), err
}

func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// A rawClient speaks frames.
type rawClient struct {
	tb     testing.TB
	conn   net.Conn
	framer *http2.Framer
	block  strings.Builder
	enc    *hpack.Encoder
}

// raw connects and exchanges settings.
func (s *testServer) raw(tb testing.TB, settings ...http2.Setting) *rawClient {
	tb.Helper()
	conn, err := net.Dial("tcp", s.addr.String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	c := &rawClient{tb: tb, conn: conn, framer: http2.NewFramer(conn, conn)}
	c.framer.AllowIllegalWrites = true
	c.framer.SetMaxReadFrameSize(1 << 24)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		tb.Fatal(err)
	}
	c.check(c.framer.WriteSettings(settings...))
	return c
}

func (c *rawClient) check(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatal(err)
	}
}

// usual is the header of a call.
func usual(method string, more ...string) []string {
	return append([]string{
		":method", "POST", ":scheme", "http", ":path", "/test.Echo/" + method, ":authority", "test",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
}

// fields returns an encoded header.
func (c *rawClient) fields(pairs ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		c.check(c.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
	}
	return []byte(c.block.String())
}

// open sends the header of a call.
func (c *rawClient) open(id uint32, end bool, pairs ...string) {
	c.tb.Helper()
	c.check(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields(pairs...), EndHeaders: true, EndStream: end}))
}

// message returns a framed message of n bytes.
func rawMessage(n int) []byte {
	body := wrapperspb.Bytes(make([]byte, n))
	data := New(Options{}).opt.Codec
	b, err := data.Marshal(body)
	if err != nil {
		panic(err)
	}
	flat := b.Materialize()
	return append([]byte{0, byte(len(flat) >> 24), byte(len(flat) >> 16), byte(len(flat) >> 8), byte(len(flat))}, flat...)
}

// outcome returns what a stream, or else the connection, came to: "OK",
// "NotFound", "RST PROTOCOL_ERROR", "GOAWAY PROTOCOL_ERROR", "HTTP 415" or "EOF".
func (c *rawClient) outcome(id uint32) string {
	c.tb.Helper()
	for {
		f, err := c.framer.ReadFrame()
		if errors.As(err, new(http2.StreamError)) || errors.As(err, new(http2.ConnectionError)) {
			c.tb.Fatalf("got %v from the server", err)
		}
		if err != nil {
			return "EOF"
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "RST " + f.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return "GOAWAY " + f.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID == id && f.StreamEnded() {
				return statusText(f)
			}
		}
	}
}

func statusText(f *http2.MetaHeadersFrame) string {
	for _, field := range f.Fields {
		if field.Name == ":status" && field.Value != "200" {
			return "HTTP " + field.Value
		}
	}
	for _, field := range f.Fields {
		if field.Name == "grpc-status" {
			var code codes.Code
			_ = code.UnmarshalJSON([]byte(field.Value))
			return code.String()
		}
	}
	return "no status"
}

// nothing is a message without content, whose codec costs nothing.
var nothing = new(struct{ _ byte })

type (
	nothingCodec    struct{}
	grpcInterceptor = grpc.UnaryServerInterceptor
)

func (nothingCodec) Name() string                         { return "nothing" }
func (nothingCodec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
func (nothingCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
