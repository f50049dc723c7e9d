package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/attack"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/watch"
)

// A stage is where classes are run one by one.
type stage struct {
	shoal, work string
	budget      int64         // --max-inflight-bytes
	calm        time.Duration // good clients alone, before the attack
	attack      time.Duration
	region      string // of shared memory, for the classes that use it
	flags       []string
	tls         credentials.TransportCredentials // of the good client; nil is plain text
}

// small is what the good clients ask.
var small = ask.Identity("small", 16)

// every is the pace of each of the good clients, of which there is one for each
// protocol.
const every = 5 * time.Millisecond

// Rates of the attacks, in bytes a second. What a flood costs at most by the
// floor, it may take a tenth of a core with; others may send whole bodies.
const (
	floodRate = 4 << 20
	otherRate = 128 << 20
)

// mostMemory is where an attack is stopped: the machine has other tenants.
const mostMemory = 6 << 30

// conns is how many connections a flood has in a run of its own.
const conns = 8

// start starts a server of its own for the class.
func (s stage) start(ctx context.Context, flags ...string) (*peer.Server, error) {
	repository := filepath.Join(s.work, "models")
	if err := ask.Write(repository, append(attack.Models(), small)...); err != nil {
		return nil, err
	}
	return peer.Start(ctx, peer.Command{
		Name: "shoal",
		Args: slices.Concat([]string{s.shoal, "serve", "--model-repository", repository, fmt.Sprintf("--max-inflight-bytes=%d", s.budget)}, s.flags, flags),
		Log:  filepath.Join(s.work, "shoal.log"),
	})
}

// run attacks a server of its own with one class, beside good clients.
func (s stage) run(ctx context.Context, c attack.Class) (figure, error) {
	f := figure{Class: c.Name, About: c.About, Conns: c.Conns}
	if f.Conns == 0 {
		f.Conns = conns
	}
	f.Allowed = int64(mostGrowth*float64(s.budget)) + int64(f.Conns)*perConn + ofRuntime
	f.ClaimedAllowed = mostClaimed*f.Allowed + ofArenas
	server, err := s.start(ctx, c.Flags...)
	if err != nil {
		return f, err
	}
	return f, errors.Join(s.against(ctx, c, server, &f), server.Close())
}

// against fills in the figure of the class against a running server.
func (s stage) against(ctx context.Context, c attack.Class, server *peer.Server, f *figure) error {
	var before attack.Good
	cpuBefore, err := s.beside(ctx, server, &before, s.calm, nil)
	if err != nil {
		return err
	}
	f.Before, _, _ = latencyOf(&before)
	if f.Files, err = files(server, 0); err != nil {
		return err
	}
	start, err := server.Process.RSS()
	if err != nil {
		return err
	}
	if err := watch.ResetPeak(server); err != nil {
		return err
	}
	var good attack.Good
	tally := attack.Tally{Rate: cmp.Or(c.Rate, otherRate)}
	if c.Flood != nil {
		tally.Rate = floodRate
	}
	claimed, err := watch.Claimed(server)
	if err != nil {
		return err
	}
	target := attack.Target{HTTP: server.HTTP, GRPC: server.GRPC, Region: s.region}
	cpu, err := s.beside(ctx, server, &good, s.attack, func(ctx context.Context) { c.Run(ctx, target, f.Conns, &tally) })
	if err != nil {
		return err
	}
	peak, err := watch.Peak(server)
	if err != nil {
		return err
	}
	claimedAfter, err := watch.Claimed(server)
	if err != nil {
		return err
	}
	f.Growth, f.Claimed = peak-start, claimedAfter-claimed
	f.Made, f.Closed, f.Bytes = tally.Conns.Load(), tally.Closed.Load(), tally.Bytes.Load()
	own := cpuBefore.Seconds() / s.calm.Seconds() * s.attack.Seconds()
	f.CPU = max(0, cpu.Seconds()-own) * 1e9 / float64(max(1, f.Bytes))
	var failure error
	f.Good, f.Failed, failure = latencyOf(&good)
	if failure != nil {
		f.Failure = failure.Error()
	}
	metrics, err := watch.ReadMetrics(server)
	if err != nil {
		return err
	}
	f.Refused = refused(metrics)
	f.FilesAfter, err = files(server, f.Files+moreFiles)
	return err
}

// files returns how many files the server has open, when they are at most so
// many or a few seconds have passed: it sees after its clients that their
// connections are gone.
func files(server *peer.Server, most int) (int, error) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		st, err := watch.Read(server, "")
		if err != nil || st.Files <= most || most == 0 || time.Now().After(deadline) {
			return st.Files, err
		}
	}
}

// beside runs the good clients for a while, with what is beside them, and
// returns the CPU time that the server took.
func (s stage) beside(ctx context.Context, server *peer.Server, good *attack.Good, d time.Duration, act func(context.Context)) (time.Duration, error) {
	h := ask.NewHTTP(server.HTTP)
	defer h.Close()
	g, err := ask.NewGRPC(server.GRPC, s.tls)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	before, err := server.Process.CPU()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	var broken error
	wg.Go(func() {
		watch.Guard(ctx, server, mostMemory, func(err error) {
			broken = err
			cancel()
		})
	})
	wg.Go(func() { good.Ask(ctx, every, small, h.Ask) })
	wg.Go(func() { good.Ask(ctx, every, small, g.Ask) })
	if act != nil {
		wg.Go(func() { act(ctx) })
	}
	wg.Wait()
	after, err := server.Process.CPU()
	return after - before, errors.Join(broken, err)
}

func latencyOf(g *attack.Good) (latency, int, error) {
	count, p50, p99, most, failed, err := g.Summary()
	return latency{count, millis(p50), millis(p99), millis(most)}, failed, err
}

// refused adds up what the server says it has refused.
func refused(m watch.Metrics) int {
	var sum float64
	for _, family := range []string{"shoal_requests_refused_total", "shoal_requests_rejected_total", "shoal_connections_refused_total", "shoal_inflight_refused_total"} {
		sum += m.Sum(family)
	}
	return int(sum)
}
