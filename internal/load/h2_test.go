package load

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"golang.org/x/net/http2"
	"shoal/internal/protocol/h2"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// A h2Service answers with the request's bytes, or with the error that its id
// asks for.
type h2Service struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
	key chan string
}

func (s *h2Service) ModelInfer(ctx context.Context, r *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	if s.key != nil {
		md, _ := metadata.FromIncomingContext(ctx)
		s.key <- strings.Join(md.Get("x-key"), ",")
	}
	if r.Id == "fail" {
		return nil, status.Error(codes.NotFound, "no \"model\"\nünder 100%")
	}
	return &inferencepb.ModelInferResponse{Id: r.Id, RawOutputContents: r.RawInputContents}, nil
}

func serveH2(t *testing.T, s inferencepb.GRPCInferenceServiceServer, o ...grpc.ServerOption) (string, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o = append(o, grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	server := grpc.NewServer(o...)
	inferencepb.RegisterGRPCInferenceServiceServer(server, s)
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return l.Addr().String(), server
}

// infer makes a call with so many bytes and returns the answer.
func infer(t *testing.T, l *H2Link, c Conn, id string, size int) (*inferencepb.ModelInferResponse, error) {
	t.Helper()
	raw := make([]byte, size)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	request, err := proto.Marshal(&inferencepb.ModelInferRequest{ModelName: "m", Id: id, RawInputContents: [][]byte{raw}})
	if err != nil {
		t.Fatal(err)
	}
	x := Exchange{Keep: true}
	if err := c.Do(t.Context(), h2Message(t, l, request), &x); err != nil {
		return nil, err
	}
	var r inferencepb.ModelInferResponse
	if err := proto.Unmarshal(x.Answer, &r); err != nil {
		t.Fatal(err)
	}
	if r.Id != id || !bytes.Equal(r.RawOutputContents[0], raw) {
		t.Errorf("got id %q and %d bytes, want %q and the %d that were sent", r.Id, len(r.RawOutputContents[0]), id, size)
	}
	return &r, nil
}

func TestH2CallsCarryMessagesOfAnySize(t *testing.T) {
	small := []grpc.ServerOption{grpc.StaticStreamWindowSize(64 << 10), grpc.StaticConnWindowSize(64 << 10)}
	table := []grpc.ServerOption{grpc.HeaderTableSize(0)}
	for name, o := range map[string][]grpc.ServerOption{"usual": nil, "narrow windows": small, "no header table": table} {
		address, _ := serveH2(t, &h2Service{}, o...)
		l := NewH2Link(address, H2Options{})
		c := conn(t, l)
		for i, size := range []int{0, 1, 100, 16384, 16385, 70_000, 5_000_000, 3} {
			if _, err := infer(t, l, c, strings.Repeat("i", i), size); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
		}
	}
}

func TestH2ErrorsAreTheServers(t *testing.T) {
	address, _ := serveH2(t, &h2Service{})
	l := NewH2Link(address, H2Options{})
	c := conn(t, l)
	for range 3 {
		_, err := infer(t, l, c, "fail", 10)
		if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "no \"model\"\nünder 100%" {
			t.Errorf("got %v, want the server's words", err)
		}
		if _, err := infer(t, l, c, "good", 10); err != nil {
			t.Errorf("after an error: got %v, want an answer over the same connection", err)
		}
	}
}

func TestH2RefusesAnOversizedRequestInTheServersWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(100_000))
	inferencepb.RegisterGRPCInferenceServiceServer(server, &h2Service{})
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	link := NewH2Link(l.Addr().String(), H2Options{})
	c := conn(t, link)
	if _, err := infer(t, link, c, "x", 10_000_000); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want that it is too large", err)
	}
	if _, err := infer(t, link, c, "x", 10); err != nil {
		t.Errorf("after that: got %v, want an answer", err)
	}
}

func TestH2SendsHeadersAndCompressedMessages(t *testing.T) {
	service := &h2Service{key: make(chan string, 1)}
	address, _ := serveH2(t, service)
	for _, by := range []string{"", "gzip"} {
		l := NewH2Link(address, H2Options{Compression: by, Header: []hpack.HeaderField{{Name: "x-key", Value: "k"}}})
		c := conn(t, l)
		for range 3 {
			if _, err := infer(t, l, c, "a", 50_000); err != nil { // grpc-go answers in the compression that it was asked in
				t.Errorf("%q: %v", by, err)
			}
			if got := <-service.key; got != "k" {
				t.Errorf("%q: got the key %q, want k", by, got)
			}
		}
	}
	_, packed, err := compress("deflate", []byte("hello"))
	if got, unpackErr := decompress("deflate", packed); err != nil || unpackErr != nil || string(got) != "hello" {
		t.Errorf("deflate: got %q, %v, %v, want hello", got, err, unpackErr)
	}
	if _, err := NewH2Link(address, H2Options{Compression: "zip"}).Message(nil); err == nil {
		t.Error("an unknown compression: got no error, want one")
	}
}

func TestH2LeavesAConnectionThatTheServerWantsToClose(t *testing.T) {
	said := frame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00") + goodAnswer()
	c := overScript([]byte(said), H2Options{})
	x := Exchange{Keep: true}
	if err := c.Do(t.Context(), h2Message(t, c.link, nil), &x); err != nil || string(x.Answer) != "hi" || c.conn != nil {
		t.Errorf("got %q, %v, want the answer and no more over that connection", x.Answer, err)
	}
}

func TestH2GoesOnAfterTheServerEnds(t *testing.T) {
	first, server := serveH2(t, &h2Service{})
	l := NewH2Link(first, H2Options{})
	c := conn(t, l)
	if _, err := infer(t, l, c, "a", 10); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if _, err := infer(t, l, c, "a", 10); err == nil {
		t.Error("after the end of the server: got an answer, want an error")
	}
	next, err := net.Listen("tcp", first)
	if err != nil {
		t.Skip("the port was taken: ", err)
	}
	again := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(again, &h2Service{})
	var wg sync.WaitGroup
	wg.Go(func() { again.Serve(next) })
	t.Cleanup(func() { again.Stop(); wg.Wait() })
	if _, err := infer(t, l, c, "a", 10); err != nil {
		t.Errorf("when a server is back: got %v, want an answer over a new connection", err)
	}
}

func TestH2CloseEndsACallUnderWay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link := NewH2Link(l.Addr().String(), H2Options{})
	c := conn(t, link)
	got := make(chan error)
	go func() { got <- c.Do(context.Background(), h2Message(t, link, nil), &Exchange{}) }()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := io.ReadFull(peer, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-got; err == nil {
		t.Error("got no error, want one")
	}
	if err := c.Do(t.Context(), h2Message(t, link, nil), &Exchange{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after that: got %v, want that it is closed", err)
	}
}

func TestH2OverTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	address, _ := serveH2(t, &h2Service{}, grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	l := NewH2Link(address, H2Options{TLS: &tls.Config{RootCAs: roots}})
	if _, err := infer(t, l, conn(t, l), "a", 100_000); err != nil {
		t.Error(err)
	}
}

func TestH2SaysThatAPortSpeaksHTTP1(t *testing.T) {
	l := NewH2Link(serve(t, echo), H2Options{})
	if _, err := infer(t, l, conn(t, l), "a", 1); err == nil || !strings.Contains(err.Error(), "gRPC port") {
		t.Errorf("got %v, want what is wrong", err)
	}
}

// A script is a connection whose other side has said everything beforehand.
type script struct {
	net.Conn
	io.Reader
}

func (s *script) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s *script) Write(b []byte) (int, error) { return len(b), nil }
func (s *script) Close() error                { return nil }

// overScript returns a connection that reads what is given.
func overScript(said []byte, o H2Options) *h2Conn {
	c := &h2Conn{link: NewH2Link("127.0.0.1:1", o), lazyConn: lazyConn{conn: &script{Reader: bytes.NewReader(said)}}}
	c.greet()
	return c
}

func frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) string {
	return string(h2.AppendHeader(nil, len(payload), kind, flags, stream)) + payload
}

// block encodes header fields that no table knows.
func block(fields ...string) string {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.String()
}

// goodAnswer is an answer of two bytes in every form that a server may choose.
func goodAnswer() string {
	open := block(":status", "200")
	return frame(http2.FrameSettings, 0, 0, "\x00\x04\x00\x00\xff\xff\x00\x05\x00\x00\x80\x00") + frame(http2.FrameSettings, http2.FlagPingAck, 0, "") +
		frame(http2.FrameWindowUpdate, 0, 0, "\x00\x01\x00\x00") + frame(http2.FramePing, 0, 0, "12345678") + frame(99, 0, 0, "unknown") +
		frame(http2.FrameHeaders, http2.FlagDataPadded|http2.FlagHeadersPriority, 1, "\x02\x00\x00\x00\x00\x00"+open[:1]+"\x00\x00") + frame(http2.FrameContinuation, http2.FlagHeadersEndHeaders, 1, open[1:]) +
		frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 7, block(":status", "500")) + frame(http2.FrameData, 0, 7, "another's") +
		frame(http2.FrameData, http2.FlagDataPadded, 1, "\x01\x00\x00\x00\x00\x00") + frame(http2.FrameData, 0, 1, "\x02h") + frame(http2.FrameData, 0, 1, "i") +
		frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, 1, block("grpc-status", "0"))
}

func TestH2ReadsEveryFormOfAnAnswer(t *testing.T) {
	c := overScript([]byte(goodAnswer()), H2Options{})
	x := Exchange{Keep: true}
	if err := c.Do(t.Context(), h2Message(t, c.link, []byte("request")), &x); err != nil || string(x.Answer) != "hi" {
		t.Errorf("got %q, %v, want hi", x.Answer, err)
	}
	if c.frame != 0x8000 || c.initial != 0xffff {
		t.Errorf("got frames of %d and windows of %d, want what the settings say", c.frame, c.initial)
	}
	if !bytes.Contains(c.out, []byte("12345678")) && len(c.out) > 0 {
		t.Errorf("got %q to be written, want the ping's answer or nothing", c.out)
	}
}

func TestH2RefusesBrokenAnswers(t *testing.T) {
	ok := frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, block(":status", "200"))
	end := frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, 1, block("grpc-status", "0"))
	for name, said := range map[string]string{
		"nothing":               "",
		"half a frame":          ok[:len(ok)-1],
		"a frame too large":     string(h2.AppendHeader(nil, 1<<20, http2.FrameData, 0, 1)),
		"another status":        frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, 1, block(":status", "404")),
		"no grpc-status":        ok + frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, 1, ""),
		"a bad grpc-status":     ok + frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, 1, block("grpc-status", "x")),
		"a message cut short":   ok + frame(http2.FrameData, 0, 1, "\x00\x00\x00\x00\x09hi") + end,
		"a prefix cut short":    ok + frame(http2.FrameData, 0, 1, "\x00\x00") + end,
		"two messages":          ok + frame(http2.FrameData, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") + end,
		"no known compression":  ok + frame(http2.FrameData, 0, 1, "\x01\x00\x00\x00\x00") + end,
		"more padding than is":  ok + frame(http2.FrameData, http2.FlagDataPadded, 1, "\x09x"),
		"a broken header":       frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"a reset":               frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x02"),
		"a goodbye":             frame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x02"),
		"a window beyond all":   frame(http2.FrameSettings, 0, 0, "\x00\x04\xff\xff\xff\xff"),
		"a broken window":       frame(http2.FrameWindowUpdate, 0, 0, "\x00"),
		"a priority cut short":  frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, 1, "x"),
		"a header without end":  frame(http2.FrameHeaders, 0, 1, "") + strings.Repeat(frame(http2.FrameContinuation, 0, 1, strings.Repeat("x", h2.MinMaxFrame)), 3),
		"the end of the stream": ok + frame(http2.FrameData, http2.FlagDataEndStream, 1, "\x00\x00\x00\x00\x00"),
	} {
		c := overScript([]byte(said), H2Options{})
		x := Exchange{Keep: true}
		if err := c.Do(t.Context(), h2Message(t, c.link, nil), &x); err == nil {
			t.Errorf("%s: got %q, want an error", name, x.Answer)
		}
	}
}

func FuzzH2(f *testing.F) {
	f.Add([]byte(goodAnswer()), false)
	stream := frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, block(":status", "200")) + frame(http2.FrameData, 0, 1, "\x00\x00\x00\x00\x04\x0a\x02no")
	f.Add([]byte(stream), true)
	f.Fuzz(func(t *testing.T, said []byte, stream bool) {
		c := overScript(said, H2Options{Stream: stream, Decoupled: stream})
		m := &Message{wire: binary.BigEndian.AppendUint32([]byte{0}, 0)}
		for range 3 { // until what was said is used up, or the connection is given up
			if c.conn == nil {
				break
			}
			_ = c.Do(t.Context(), m, &Exchange{Keep: true})
		}
	})
}

func BenchmarkH2Call(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(server, &h2Service{})
	go server.Serve(l)
	defer server.Stop()
	link := NewH2Link(l.Addr().String(), H2Options{})
	conns, _ := link.Conns(1)
	defer conns[0].Close()
	m, _ := link.Message([]byte{})
	var x Exchange
	b.ReportAllocs()
	for b.Loop() {
		if err := conns[0].Do(b.Context(), m, &x); err != nil {
			b.Fatal(err)
		}
	}
}
