package main

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/attack"
	"shoal/bench/internal/peer"
)

// TestHandshakesThatDoNotEndAreHeld attacks servers over TLS with a thousand
// connections at a time that never finish their handshake.
func TestHandshakesThatDoNotEndAreHeld(t *testing.T) {
	for name, mutual := range map[string]bool{"tls": false, "mutual tls": true} {
		t.Run(name, func(t *testing.T) {
			plain := newStage(t)
			plain.budget *= 4 // each connection counts for 64 KiB of it
			s, _, err := plain.overTLS(mutual)
			if err != nil {
				t.Fatal(err)
			}
			var figures []figure
			for _, c := range attack.Handshakes() {
				each := s
				if c.Rate > 0 {
					each.attack = 1600 * time.Millisecond // a thousand handshakes at that rate
				}
				f := each.held(t, c)
				// None of them comes to a request, so the budget is no part of it.
				if most := int64(c.Conns)*perConn + ofRuntime; f.Growth > most {
					t.Errorf("%s: memory grew by %.1f MB, want at most %.1f", c.Name, mb(f.Growth), mb(most))
				}
				figures = append(figures, f)
			}
			t.Logf("%s:\n%s", name, table(figures))
		})
	}
}

// TestMutualTLSRefusesOtherCertificates has clients without a certificate and
// with one of another authority ask a hundred times, beside a good one.
func TestMutualTLSRefusesOtherCertificates(t *testing.T) {
	s, a, err := newStage(t).overTLS(true)
	if err != nil {
		t.Fatal(err)
	}
	server, err := s.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	before, err := files(server, 0)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	forged, err := stranger.issue()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		for name, creds := range map[string]credentials.TransportCredentials{
			"no certificate": a.client(), "one of another authority": a.client(forged), "an empty one": a.client(tls.Certificate{}),
		} {
			if err := askOnce(t.Context(), server, creds); status.Code(err) != codes.Unavailable {
				t.Fatalf("%s: got %v, want a connection that is refused", name, err)
			}
		}
		if err := askOnce(t.Context(), server, s.tls); err != nil {
			t.Fatalf("the good client: %v", err)
		}
	}
	if after, err := files(server, before+moreFiles); err != nil || after > before+moreFiles {
		t.Errorf("got %d open files, %v, want at most %d", after, err, before+moreFiles)
	}
}

// askOnce asks over a connection of its own.
func askOnce(ctx context.Context, server *peer.Server, creds credentials.TransportCredentials) error {
	g, err := ask.NewGRPC(server.GRPC, creds)
	if err != nil {
		return err
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return g.Ask(ctx, ask.Question{Model: small, Number: 1})
}
