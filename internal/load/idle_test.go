package load

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"golang.org/x/net/http2"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// A streamService answers each request of a stream once.
type streamService struct{ h2Service }

func (s *streamService) ModelStreamInfer(stream grpc.BidiStreamingServer[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&inferencepb.ModelStreamInferResponse{InferResponse: &inferencepb.ModelInferResponse{Id: r.Id}}); err != nil {
			return err
		}
	}
}

// tendUntil tends connections until done is closed, and fails before grpc's own
// patience with a client that does not answer is at an end.
func tendUntil(t *testing.T, done <-chan struct{}, conns ...Conn) {
	t.Helper()
	late := time.After(4 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-late:
			t.Fatal("the server still waits for its idle clients after 4 s, want it to stop at once")
		case <-tick.C:
			for _, c := range conns {
				c.PollIdle()
			}
		}
	}
}

func TestIdleConnectionsLetAServerStop(t *testing.T) {
	for name, o := range map[string]H2Options{"calls": {}, "streams": {Stream: true}} {
		t.Run(name, func(t *testing.T) {
			address, server := serveH2(t, &streamService{})
			l := NewH2Link(address, o)
			conns, err := l.Conns(3)
			if err != nil {
				t.Fatal(err)
			}
			message := h2Message(t, l, nil)
			for _, c := range conns {
				defer c.Close()
				if err := c.Do(t.Context(), message, &Exchange{}); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { server.GracefulStop(); close(done) })
			tendUntil(t, done, conns...)
			wg.Wait()
			next, err := net.Listen("tcp", address)
			if err != nil {
				t.Skip("the port was taken: ", err)
			}
			again := grpc.NewServer()
			inferencepb.RegisterGRPCInferenceServiceServer(again, &streamService{})
			wg.Go(func() { again.Serve(next) })
			t.Cleanup(func() { again.Stop(); wg.Wait() })
			if err := conns[0].Do(t.Context(), message, &Exchange{}); err != nil {
				t.Errorf("a request to the server that followed: got %v, want an answer over a new connection", err)
			}
		})
	}
}

func TestARefusedCallIsMadeAgainOverANewConnection(t *testing.T) {
	// The first connection is told that no call was begun; grpc-go answers the
	// second.
	real, _ := serveH2(t, &h2Service{})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		first, err := front.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		_, _ = first.Read(buf)
		_, _ = first.Write([]byte(frame(http2.FrameSettings, 0, 0, "") + frame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")))
		second, err := front.Accept()
		first.Close()
		if err != nil {
			return
		}
		defer second.Close()
		server, err := net.Dial("tcp", real)
		if err != nil {
			return
		}
		defer server.Close()
		wg.Go(func() { io.Copy(server, second); server.Close() })
		io.Copy(second, server)
	})
	l := NewH2Link(front.Addr().String(), H2Options{})
	c := conn(t, l)
	if _, err := infer(t, l, c, "a", 10); err != nil {
		t.Errorf("got %v, want an answer over the second connection", err)
	}
	c.Close()
	front.Close()
	wg.Wait()
}

func TestHTTPConnectionThatTheServerClosedIsReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "0") }))
	defer server.Close()
	l := NewHTTPLink(strings.TrimPrefix(server.URL, "http://"), nil)
	conns, _ := l.Conns(1)
	c := conns[0].(*httpConn)
	defer c.Close()
	message := l.Message("/", nil, nil)
	if err := c.Do(t.Context(), message, &Exchange{}); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	for deadline := time.Now().Add(4 * time.Second); c.conn != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the end of the connection was not heard within 4 s")
		}
		c.PollIdle()
	}
	if err := c.Do(t.Context(), message, &Exchange{}); err != nil {
		t.Errorf("after the server closed the connection: got %v, want an answer over a new one", err)
	}
}
