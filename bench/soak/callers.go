package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/peer"
)

const (
	// patience is how long an answer may take. The race detector makes the
	// server slow, and a killed worker takes a second to come back.
	patience = time.Minute
	// cancelled is the share of requests that their client withdraws.
	cancelled = 0.2
)

// soak runs all callers against the server for a while, and returns when the
// last of them has its answer.
func soak(ctx context.Context, s *peer.Server, books *ledger, d time.Duration) error {
	stop, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	h := ask.NewHTTP(s.HTTP)
	defer h.Close()
	var wg sync.WaitGroup
	var err error
	for range 2 { // two connections, each with half of the callers
		g, e := ask.NewGRPC(s.GRPC, nil)
		if e != nil {
			err = e
			break
		}
		defer g.Close()
		for _, m := range []ask.Model{batched, python} {
			for range 2 {
				wg.Go(func() { callers(stop, books, m, h.Ask, cancelled) })
				wg.Go(func() { callers(stop, books, m, g.Ask, cancelled) })
			}
		}
		wg.Go(func() { callers(stop, books, calm, h.Ask, 0) })
		wg.Go(func() { callers(stop, books, calm, g.Ask, 0) })
		wg.Go(func() { callers(stop, books, big, g.Ask, cancelled) })
		wg.Go(func() { callers(stop, books, big, h.Ask, cancelled) })
		wg.Go(func() { streams(stop, books, g) })
		wg.Go(func() { streams(stop, books, g) })
	}
	wg.Go(func() { kill(stop, books, s) })
	wg.Go(func() { halves(stop, books, s) })
	wg.Go(func() { hangUps(stop, books, s) })
	wg.Wait()
	return errors.Join(err, ctx.Err())
}

// callers asks until stop ends, one question after another. A share of them is
// cancelled at a random moment, half by a deadline.
func callers(stop context.Context, books *ledger, m ask.Model, send func(context.Context, ask.Question) error, share float64) {
	for stop.Err() == nil {
		// The last question is still asked to its end.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), patience)
		withdrawn := rand.Float64() < share
		if withdrawn {
			ctx, cancel = withdraw(ctx, cancel)
		}
		err := send(ctx, books.question(m))
		cancel()
		books.note(m, err, withdrawn)
	}
}

// withdraw makes the context end within 20 ms, by a deadline, which gRPC tells
// the server, or by a cancellation.
func withdraw(ctx context.Context, cancel context.CancelFunc) (context.Context, context.CancelFunc) {
	after := time.Duration(rand.Int64N(int64(20 * time.Millisecond)))
	if rand.IntN(2) == 0 {
		sooner, cancelSooner := context.WithTimeout(ctx, after)
		return sooner, func() { cancelSooner(); cancel() }
	}
	timer := time.AfterFunc(after, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// streams asks for countdowns, up to ten on one stream. A share of the streams
// is cancelled within one.
func streams(stop context.Context, books *ledger, g *ask.GRPC) {
	for stop.Err() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), patience)
		withdrawn := rand.Float64() < cancelled
		if withdrawn {
			ctx, cancel = withdraw(ctx, cancel)
		}
		stream(ctx, books, g, withdrawn)
		cancel()
	}
}

func stream(ctx context.Context, books *ledger, g *ask.GRPC, withdrawn bool) {
	s, err := g.Stream(ctx)
	if err != nil {
		books.note(counts, err, withdrawn)
		return
	}
	for range 1 + rand.IntN(10) {
		err := s.Countdown(books.question(counts), rand.IntN(50))
		books.note(counts, err, withdrawn)
		if fault := new(ask.StreamError); err != nil && !errors.As(err, &fault) {
			return
		}
	}
	if err := s.CloseSend(); !errors.Is(err, io.EOF) && !withdrawn {
		books.note(counts, err, false)
	}
}
