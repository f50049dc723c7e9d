package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// Handshakes returns the attacks on a server that speaks gRPC over TLS, all before
// the handshake is over.
func Handshakes() []Class {
	return []Class{
		{Name: "tls-silent", Conns: 1000, Act: silent(grpcAddress), About: "connections without a handshake"},
		{Name: "tls-slow", Conns: 1000, Act: tlsSlow, About: "a ClientHello byte by byte"},
		{Name: "tls-half", Conns: 1000, Rate: 1 << 20, Act: tlsHalf, About: "a whole ClientHello and nothing more"},
		{Name: "tls-garbage", Conns: 100, Act: tlsGarbage, About: "bytes that are no handshake"},
	}
}

// hello is a whole ClientHello, as Go's client sends it.
var hello = sync.OnceValue(func() []byte {
	var first recorder
	// The error is the recorder's own.
	_ = tls.Client(&first, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake()
	return first.sent
})

// A recorder is a connection that keeps what is sent and answers nothing.
type recorder struct {
	net.Conn
	sent []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent = append(r.sent, b...)
	return len(b), nil
}
func (r *recorder) Read([]byte) (int, error)         { return 0, errors.New("nobody answers") }
func (r *recorder) Close() error                     { return nil }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func tlsSlow(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.GRPC, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.trickle(ctx, hello(), 1, 500*time.Millisecond)
}

func tlsHalf(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.GRPC, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := w.Write(hello()); err != nil {
		return err
	}
	return w.hold()
}

func tlsGarbage(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.GRPC, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := w.Write(spoil(hello())); err != nil {
		return err
	}
	return w.hold()
}
