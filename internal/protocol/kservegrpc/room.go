package kservegrpc

import (
	"context"
	"sync/atomic"
)

// A room limits what one stream may hold: a number of requests, and of bytes of
// requests and unsent answers. One goroutine lets requests in; any may count
// and let out.
type room struct {
	requests, bytes       atomic.Int64
	maxRequests, maxBytes int64
	freed                 chan struct{} // buffered 1: something was let out
}

func newRoom(requests int, bytes int64) *room {
	return &room{maxRequests: int64(requests), maxBytes: bytes, freed: make(chan struct{}, 1)}
}

// await returns when another request may come in. One is let in whatever its
// size, so that none waits for ever.
func (r *room) await(ctx context.Context) error {
	for r.requests.Load() >= r.maxRequests || r.bytes.Load() >= r.maxBytes {
		select {
		case <-r.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// enter counts a request of that many bytes.
func (r *room) enter(bytes int) {
	r.requests.Add(1)
	r.bytes.Add(int64(bytes))
}

// turn counts that a request of some bytes has become an answer of others.
func (r *room) turn(from, to int) {
	r.bytes.Add(int64(to - from))
	r.tell()
}

// leave counts that an answer of that many bytes was sent.
func (r *room) leave(bytes int) {
	r.requests.Add(-1)
	r.bytes.Add(-int64(bytes))
	r.tell()
}

// tell makes await check again.
func (r *room) tell() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
