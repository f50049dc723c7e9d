package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestTallyKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := &Tally{Rate: 1000}
		start := time.Now()
		for range 11 {
			tally.wait(t.Context(), 100)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("11 times 100 bytes at 1000 a second: the last waited until %v, want 1s", got)
		}
	})
}

func TestBombUnpacksToAThousandTimesItsSize(t *testing.T) {
	r, err := gzip.NewReader(bytes.NewReader(bomb()))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != bombSize || n < 900*int64(len(bomb())) {
		t.Errorf("got %d bytes from %d, %v, want %d", n, len(bomb()), err, bombSize)
	}
}

func TestMessageIsARequest(t *testing.T) {
	var m inferencepb.ModelInferRequest
	if err := proto.Unmarshal(Message("m", 4), &m); err != nil || m.GetModelName() != "m" || len(m.GetRawInputContents()[0]) != 16 {
		t.Errorf("got %v, %v, want a request to m with 16 bytes", &m, err)
	}
}

// TestHelloIsAClientHello has a TLS server read what the attacks send.
func TestHelloIsAClientHello(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go client.Write(hello())
	seen := errors.New("seen")
	s := tls.Server(server, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, seen }})
	go io.Copy(io.Discard, client)
	if err := s.HandshakeContext(t.Context()); !errors.Is(err, seen) {
		t.Errorf("got %v, want the handshake to come to the server's configuration", err)
	}
}

// TestFloodsAreSentWhole floods grpc-go's server: each flood must reach it, also
// those for which it ends the connection.
func TestFloodsAreSentWhole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(s, reference{})
	go s.Serve(l)
	defer s.Stop()
	for _, c := range Control() {
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			clock := time.Duration(0)
			const size = 20 << 10
			sent, spent := c.Flood.Burst(ctx, Target{GRPC: l.Addr().String()}, size, func() time.Duration { clock++; return clock })
			if sent < size || spent == 0 {
				t.Errorf("got %d bytes sent and %d of the clock, want at least %d and some", sent, spent, size)
			}
		})
	}
}
