package kservegrpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/kserve"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// lateLookup is the lookup of an engine that starts after its counter.
type lateLookup struct{ s *testServer }

func (l *lateLookup) find(model string, version int64) (bool, int64) {
	return l.s.engine.Lookup(model, version)
}

// startCounted starts a server that counts what it rejects.
func startCounted(t *testing.T, opt Options) (*testServer, *reject.Counter) {
	t.Helper()
	late := new(lateLookup)
	opt.Server.Rejects = reject.New(late.find, slog.New(slog.DiscardHandler))
	late.s = startServer(t, opt)
	return late.s, opt.Server.Rejects
}

// allRejected returns every count that is not zero, as "model/version reason".
func allRejected(c *reject.Counter) map[string]uint64 {
	all := make(map[string]uint64)
	add := func(model string, version int64) {
		for r := range reject.ReasonCount {
			if n := c.Requests(model, version)[reject.GRPC][r]; n > 0 {
				all[fmt.Sprintf("%s/%d %v", model, version, r)] = n
			}
		}
	}
	add("", reject.NoVersion)
	for m := range testModels {
		add(m, reject.NoVersion)
		add(m, 1)
	}
	return all
}

func wantRejected(t *testing.T, c *reject.Counter, want string) {
	t.Helper()
	got := allRejected(c)
	if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[want] != 1) {
		t.Errorf("counted %v, want %q once", got, want)
	}
}

// changed returns a good request with a change.
func changed(f func(*pb.ModelInferRequest)) *pb.ModelInferRequest {
	r := floatsRequest(4)
	f(r)
	return r
}

var rejectCases = []struct {
	name string
	send *pb.ModelInferRequest
	want string
}{
	{"a good request", floatsRequest(4), ""},
	{"no such model", changed(func(r *pb.ModelInferRequest) { r.ModelName = "nosuch" }), "/-1 unknown_model"},
	{"no such version", changed(func(r *pb.ModelInferRequest) { r.ModelVersion = "7" }), "floats/-1 unknown_model"},
	{"a version that is no number", changed(func(r *pb.ModelInferRequest) { r.ModelVersion = "x" }), "floats/1 bad_input"},
	{"an unknown input", changed(func(r *pb.ModelInferRequest) { r.Inputs[0].Name = "X" }), "floats/1 bad_input"},
	{"the wrong type", changed(func(r *pb.ModelInferRequest) { r.Inputs[0].Datatype = "INT32" }), "floats/1 bad_input"},
	{"a type that is none", changed(func(r *pb.ModelInferRequest) { r.Inputs[0].Datatype = "X" }), "floats/1 bad_input"},
	{"the wrong shape", changed(func(r *pb.ModelInferRequest) { r.Inputs[0].Shape = []int64{4} }), "floats/1 bad_input"},
	{"too few bytes", changed(func(r *pb.ModelInferRequest) { r.RawInputContents[0] = r.RawInputContents[0][:8] }), "floats/1 bad_input"},
}

func TestRejectedCallsAreCountedByModelAndReason(t *testing.T) {
	for _, tc := range rejectCases {
		t.Run(tc.name, func(t *testing.T) {
			s, rejects := startCounted(t, Options{})
			_, err := s.client.ModelInfer(t.Context(), tc.send)
			if (err == nil) != (tc.want == "") {
				t.Errorf("got %v", err)
			}
			wantRejected(t, rejects, tc.want)
		})
		t.Run(tc.name+" on a stream", func(t *testing.T) {
			s, rejects := startCounted(t, Options{})
			stream, err := s.client.ModelStreamInfer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(tc.send); err != nil {
				t.Fatal(err)
			}
			resp, err := stream.Recv()
			if err != nil || (resp.GetErrorMessage() == "") != (tc.want == "") {
				t.Errorf("got %v and %v", resp, err)
			}
			wantRejected(t, rejects, tc.want)
		})
	}
}

func TestRejectionsAroundInferenceAreCounted(t *testing.T) {
	rule := &kserve.Restriction{Header: "k", Value: "v"}
	restricted := Options{Restrictions: kserve.Restrictions{kserve.Inference: rule, kserve.ModelConfig: rule}}
	invoke := func(method string, opts ...grpc.CallOption) func(context.Context, *testServer) error {
		return func(ctx context.Context, s *testServer) error {
			return s.conn.Invoke(ctx, method, floatsRequest(4), new(pb.ModelInferResponse), opts...)
		}
	}
	const infer = pb.GRPCInferenceService_ModelInfer_FullMethodName
	cases := []struct {
		name string
		opt  Options
		call func(context.Context, *testServer) error
		code codes.Code
		want string
	}{
		{"restricted inference", restricted, invoke(infer), codes.Unavailable, "/-1 restricted"},
		{"a restricted configuration", restricted, func(ctx context.Context, s *testServer) error {
			_, err := s.client.ModelConfig(ctx, &pb.ModelConfigRequest{Name: "floats"})
			return err
		}, codes.Unavailable, "/-1 restricted"},
		{"metadata of no such model", Options{}, func(ctx context.Context, s *testServer) error {
			_, err := s.client.ModelMetadata(ctx, &pb.ModelMetadataRequest{Name: "nosuch"})
			return err
		}, codes.NotFound, "/-1 unknown_model"},
		{"a decoupled model", Options{}, func(ctx context.Context, s *testServer) error {
			r := gatedRequest(1)
			r.ModelName = "decoupled"
			_, err := s.client.ModelInfer(ctx, r)
			return err
		}, codes.Unimplemented, "decoupled/1 unsupported"},
		{"a server that stops", Options{}, func(ctx context.Context, s *testServer) error {
			s.engine.Stop()
			return invoke(infer)(ctx, s)
		}, codes.Unavailable, "/-1 not_ready"},
		{"no such service", Options{}, invoke("/x.Y/Z"), codes.Unimplemented, "/-1 unknown_route"},
		{"no such method", Options{}, invoke("/inference.GRPCInferenceService/X"), codes.Unimplemented, "/-1 unknown_route"},
		{"a message that is too large", Options{Server: grpcserver.Options{MaxReceive: 1 << 10, MaxSend: 1 << 10}}, func(ctx context.Context, s *testServer) error {
			_, err := s.client.ModelInfer(ctx, floatsRequest(1000))
			return err
		}, codes.ResourceExhausted, "/-1 too_large"},
		{"a message that is too large unpacked", Options{Server: grpcserver.Options{MaxReceive: 1 << 10, MaxSend: 1 << 10}}, func(ctx context.Context, s *testServer) error {
			r := floatsRequest(1)
			r.RawInputContents[0] = make([]byte, 10_000)
			_, err := s.client.ModelInfer(ctx, r, grpc.UseCompressor(gzip.Name))
			return err
		}, codes.ResourceExhausted, "/-1 too_large"},
		{"an execution that fails", Options{}, func(ctx context.Context, s *testServer) error {
			go s.gate.pass(1, status.Errorf(status.InvalidArgument, "the model does not like it"))
			_, err := s.client.ModelInfer(ctx, gatedRequest(1))
			return err
		}, codes.InvalidArgument, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, rejects := startCounted(t, tc.opt)
			if err := tc.call(t.Context(), s); grpcstatus.Code(err) != tc.code {
				t.Errorf("got %v, want %v", err, tc.code)
			}
			wantRejected(t, rejects, tc.want)
		})
	}
}

// TestWhatIsNoCallIsCounted sends bytes that gRPC's own clients would not. The
// count is there when the server has closed the connection or answered.
func TestWhatIsNoCallIsCounted(t *testing.T) {
	const hello = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	cases := []struct {
		name string
		send string
		want string
	}{
		{"HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n                     ", "/-1 malformed"},
		{"a first frame that is no SETTINGS", http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", "/-1 malformed"},
		{"DATA of no stream", hello + "\x00\x00\x01\x00\x00\x00\x00\x00\x00x", "/-1 malformed"},
		{"a header block that cannot be decoded", hello + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\xff", "/-1 malformed"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, rejects := startCounted(t, Options{})
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, tc.send); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(testTimeout))
			_, _ = io.Copy(io.Discard, c) // a reset is as good as an end
			wantRejected(t, rejects, tc.want)
		})
	}
}

func TestBrokenMessagesAreCounted(t *testing.T) {
	msg, err := proto.Marshal(floatsRequest(4))
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		send []byte
	}{
		{"no protobuf", frame([]byte("\xff\xff\xff"))},
		{"two messages", append(frame(msg), frame(msg)...)},
		{"an unknown kind of message", append([]byte{9}, frame(msg)[1:]...)},
		{"compressed with nothing", append([]byte{1}, frame(msg)[1:]...)},
		{"cut short", frame(msg)[:20]},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, rejects := startCounted(t, Options{})
			c := newRawClient(t, s.Addr(), pb.GRPCInferenceService_ModelInfer_FullMethodName)
			if _, err := c.call(tc.send); err != nil {
				t.Fatal(err)
			}
			wantRejected(t, rejects, "/-1 malformed")
		})
	}
}

func TestHandshakesThatFailAreCounted(t *testing.T) {
	cert, key := makeCertificate(t)
	t.Run("no certificate of the client's", func(t *testing.T) {
		s, rejects := startCounted(t, Options{TLS: secure(t, cert, key, cert)})
		c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err == nil {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
		waitRejected(t, rejects, "/-1 unauthenticated")
	})
	t.Run("silence", func(t *testing.T) {
		s, rejects := startCounted(t, Options{Server: grpcserver.Options{ConnectionTimeout: 50 * time.Millisecond}, TLS: secure(t, cert, key, "")})
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.Copy(io.Discard, c)
		waitRejected(t, rejects, "/-1 timeout")
		if got := rejects.Connections(reject.GRPC, reject.HandshakeTimeout); got != 1 {
			t.Errorf("counted %d closed connections, want 1", got)
		}
	})
	t.Run("a probe of the port", func(t *testing.T) {
		s, rejects := startCounted(t, Options{})
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
		wantRejected(t, rejects, "")
	})
}

// waitRejected waits for a count that comes after the client's end.
func waitRejected(t *testing.T, c *reject.Counter, want string) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); allRejected(c)[want] == 0 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	wantRejected(t, c, want)
}
