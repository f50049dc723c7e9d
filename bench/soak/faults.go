package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/peer"
)

// pause waits for a random time up to most, and says whether to go on.
func pause(stop context.Context, most time.Duration) bool {
	select {
	case <-stop.Done():
		return false
	case <-time.After(time.Duration(rand.Int64N(int64(most)))):
		return true
	}
}

// kill ends a random worker of the server, again and again.
func kill(stop context.Context, books *ledger, s *peer.Server) {
	for pause(stop, 6*time.Second) {
		if err := s.FindWorkers(); err != nil || len(s.Workers) == 0 {
			continue // they are being started
		}
		victim := s.Workers[rand.IntN(len(s.Workers))]
		if syscall.Kill(victim.PID(), syscall.SIGKILL) == nil {
			books.add(&books.kills)
		}
	}
}

// halves sends parts of HTTP requests and hangs up.
func halves(stop context.Context, books *ledger, s *peer.Server) {
	for pause(stop, 100*time.Millisecond) {
		conn, err := net.Dial("tcp", s.HTTP)
		if err != nil {
			continue
		}
		fmt.Fprintf(conn, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: soak\r\nContent-Length: 600000\r\n\r\n{\"inputs\":[", big.Name)
		conn.Write(make([]byte, rand.IntN(300_000)))
		conn.Close()
		books.add(&books.halves)
	}
}

// hangUps closes gRPC connections that have calls under way.
func hangUps(stop context.Context, books *ledger, s *peer.Server) {
	for pause(stop, 200*time.Millisecond) {
		g, err := ask.NewGRPC(s.GRPC, nil)
		if err != nil {
			continue
		}
		done := make(chan error, 2)
		models := []ask.Model{big, python}
		for _, m := range models {
			go func() {
				err := g.Ask(stop, books.question(m))
				books.note(m, err, true)
				done <- err
			}()
		}
		pause(stop, 10*time.Millisecond)
		g.Close()
		for range models {
			<-done
		}
		books.add(&books.halves)
	}
}
