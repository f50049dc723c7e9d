package kservegrpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// waits reports whether a room has none for another request.
func waits(t *testing.T, r *room) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.await(ctx) }()
	synctest.Wait()
	cancel()
	return errors.Is(<-done, context.Canceled)
}

func TestRoomBoundsRequestsAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			act  func(*room)
			want bool
		}{
			{"nothing in it", func(*room) {}, false},
			{"one request less than it holds", func(r *room) { r.enter(1) }, false},
			{"as many requests as it holds", func(r *room) { r.enter(1); r.enter(1) }, true},
			{"one of them has left", func(r *room) { r.enter(1); r.enter(1); r.leave(1) }, false},
			{"a request of all its bytes", func(r *room) { r.enter(100) }, true},
			{"a request whose answer is small", func(r *room) { r.enter(100); r.turn(100, 1) }, false},
			{"a request whose answer is large", func(r *room) { r.enter(1); r.turn(1, 100) }, true},
			{"a large answer that is out", func(r *room) { r.enter(1); r.turn(1, 100); r.leave(100) }, false},
		} {
			r := newRoom(2, 100)
			c.act(r)
			if got := waits(t, r); got != c.want {
				t.Errorf("%s: got waiting %v, want %v", c.name, got, c.want)
			}
		}
	})
}

func TestRoomLetsInWhoeverWaitsWhenOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 100)
		r.enter(5)
		done := make(chan error, 1)
		go func() { done <- r.await(t.Context()) }()
		synctest.Wait()
		r.leave(5)
		if err := <-done; err != nil {
			t.Errorf("got %v, want to be let in", err)
		}
	})
}
