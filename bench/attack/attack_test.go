package main

import (
	"errors"
	"testing"

	"shoal/bench/internal/attack"
)

// TestEveryClassIsHeld attacks a server of its own with each class, beside good
// clients, and prints what came of all of them.
func TestEveryClassIsHeld(t *testing.T) {
	s := newStage(t)
	var figures []figure
	for _, c := range attack.All() {
		if c.Shared && s.region == "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			figures = append(figures, s.held(t, c))
		})
	}
	t.Logf("a server with --max-inflight-bytes=%d:\n%s", s.budget, table(figures))
}

// TestFloodsCostNoMoreThanWithGRPCGo holds what a byte of each flood costs
// against grpc-go's own server.
func TestFloodsCostNoMoreThanWithGRPCGo(t *testing.T) {
	s := newStage(t)
	s.budget = floodBudget
	r, err := startReference()
	if err != nil {
		t.Fatal(err)
	}
	server, err := s.start(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, r.close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(r.close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, c := range attack.Control() {
		if c.Flood.Unread {
			continue // it ends without a sign that the server has seen it all
		}
		t.Run(c.Name, func(t *testing.T) {
			var f figure
			if err := compare(t.Context(), c.Flood, server.Process, server.GRPC, r, &f); err != nil {
				t.Fatal(err)
			}
			t.Logf("%.2f ns a byte, grpc-go %.2f, ratio %.2f", f.Burst, f.Reference, f.Ratio)
			if f.dear() {
				t.Errorf("got %.2f times the CPU of grpc-go's server for a byte (%.1f and %.1f ns), want at most %.1f times", f.Ratio, f.Burst, f.Reference, mostRatio)
			}
		})
	}
}
