package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/attack"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/watch"
)

// What the good clients ask while all classes attack together: small requests
// and such of 602 KB.
var (
	onnx   = ask.ONNX("onnx", 16, "dynamic_batching { }\n")
	python = ask.Python("python", 16, "dynamic_batching { }\n"+ask.Instances(2))
	image  = ask.ONNX("image", 150_528, "")
)

// The pace of the good clients, of which each model has one for each protocol.
const (
	smallEvery = 20 * time.Millisecond
	imageEvery = 200 * time.Millisecond
)

// All classes together: a fifth of the connections of each, and these rates in
// bytes a second, which two cores can send and a server on the same ones take.
const (
	connsShare     = 5
	togetherFloods = 128 << 10 // each
	togetherOthers = 1 << 20   // each
	togetherBudget = 256 << 20
	mostLeft       = 1.1 // of the memory at the start
)

// A union is what came of all classes together. Sizes are in bytes.
type union struct {
	Server  string             `json:"server"`
	Conns   int                `json:"conns"` // at a time
	Made    int64              `json:"connections_made"`
	Closed  int64              `json:"connections_closed"`
	Bytes   int64              `json:"bytes"`
	Fresh   watch.State        `json:"fresh"` // before any attack
	Start   watch.State        `json:"start"` // after the warm-up, in which all classes attack for a while
	Peak    int64              `json:"rss_peak"`
	End     watch.State        `json:"end"` // when all has settled
	Good    map[string]latency `json:"good"`
	Failed  int                `json:"good_failed"`
	Failure []string           `json:"good_failures"`
	Refused int                `json:"refused"`
	Cores   float64            `json:"server_cores"`
}

// together attacks one server with all classes at once.
func together(ctx context.Context, o options, region string) (*union, error) {
	command, profiles, err := o.serve()
	if err != nil {
		return nil, err
	}
	server, err := peer.Start(ctx, command)
	if err != nil {
		return nil, err
	}
	u := &union{Server: command.String()}
	return u, errors.Join(u.run(ctx, o, server, profiles, region), server.Close())
}

// serve returns the command of the server, and the address of its profiles.
func (o options) serve() (command peer.Command, profiles string, err error) {
	if profiles, err = peer.FreeAddress(); err != nil {
		return command, "", err
	}
	if err := ask.Write(repository(o), append(attack.Models(), onnx, python, image)...); err != nil {
		return command, "", err
	}
	flags := []string{"--python", o.python, "--pprof-address", profiles, fmt.Sprintf("--max-inflight-bytes=%d", togetherBudget)}
	for _, c := range attack.All() {
		for _, f := range c.Flags {
			if !slices.Contains(flags, f) {
				flags = append(flags, f)
			}
		}
	}
	return peer.Command{
		Name: "shoal", Log: filepath.Join(o.work, "together.log"),
		Args: append([]string{o.shoal, "serve", "--model-repository", repository(o)}, flags...),
	}, profiles, nil
}

// run has good clients alone for a while, then all classes beside them, and
// looks at the memory when that has settled. A short attack comes first: what Go's
// runtime sets up for its first peak it keeps, and that is no leak.
func (u *union) run(ctx context.Context, o options, server *peer.Server, profiles, region string) (err error) {
	target := attack.Target{HTTP: server.HTTP, GRPC: server.GRPC, Region: region}
	warmUp := min(o.together/10, 20*time.Second)
	if err := u.good(ctx, server, warmUp, "before"); err != nil {
		return err
	}
	if u.Fresh, err = watch.Read(server, profiles); err != nil {
		return err
	}
	stop := new(union).attack(ctx, o, target)
	err = new(union).good(ctx, server, warmUp, "warm-up")
	stop()
	if err != nil {
		return err
	}
	if u.Start, err = u.settle(ctx, o, server, profiles, "before"); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "together: fresh %+v, starts with %+v\n", u.Fresh, u.Start)
	if err := watch.ResetPeak(server); err != nil {
		return err
	}
	cpu, err := server.Process.CPU()
	if err != nil {
		return err
	}
	stop = u.attack(ctx, o, target)
	err = u.good(ctx, server, o.together, "during")
	stop()
	if err != nil {
		return err
	}
	after, err := server.Process.CPU()
	if err != nil {
		return err
	}
	u.Cores = (after - cpu).Seconds() / o.together.Seconds()
	if u.Peak, err = watch.Peak(server); err != nil {
		return err
	}
	if u.End, err = u.settle(ctx, o, server, profiles, "after"); err != nil {
		return err
	}
	metrics, err := watch.ReadMetrics(server)
	u.Refused = refused(metrics)
	return err
}

// settle has good clients alone and returns the state afterwards. The resident
// memory is the median of the last half of that time: it rises and falls by
// several megabytes between two of Go's collections.
func (u *union) settle(ctx context.Context, o options, server *peer.Server, profiles, phase string) (watch.State, error) {
	watched, stop := context.WithCancel(ctx)
	median := make(chan int64, 1)
	go func() {
		select {
		case <-watched.Done():
		case <-time.After(o.settle / 2):
		}
		median <- watch.MedianRSS(watched, server)
	}()
	err := u.good(ctx, server, o.settle, phase)
	stop()
	if err != nil {
		return watch.State{}, err
	}
	state, err := watch.Read(server, profiles)
	state.RSS = <-median
	return state, err
}

// attack starts all classes and returns what stops them.
func (u *union) attack(ctx context.Context, o options, t attack.Target) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var tallies []*attack.Tally
	for _, c := range attack.All() {
		if !o.chosen(c) {
			continue
		}
		n := max(2, c.Conns/connsShare)
		tally := &attack.Tally{Rate: togetherOthers}
		if c.Flood != nil {
			tally.Rate = togetherFloods
		}
		u.Conns += n
		tallies = append(tallies, tally)
		wg.Go(func() { c.Run(ctx, t, n, tally) })
	}
	return func() {
		cancel()
		wg.Wait()
		for _, t := range tallies {
			u.Made += t.Conns.Load()
			u.Closed += t.Closed.Load()
			u.Bytes += t.Bytes.Load()
		}
	}
}

// good runs the good clients for a while and notes what came of them under a
// name for the phase.
func (u *union) good(ctx context.Context, server *peer.Server, d time.Duration, phase string) error {
	h := ask.NewHTTP(server.HTTP)
	defer h.Close()
	g, err := ask.NewGRPC(server.GRPC, nil)
	if err != nil {
		return err
	}
	defer g.Close()
	phaseCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var small, large attack.Good
	var wg sync.WaitGroup
	var broken error
	wg.Go(func() {
		watch.Guard(phaseCtx, server, mostMemory, func(err error) {
			broken = err
			cancel()
		})
	})
	for _, send := range []func(context.Context, ask.Question) error{h.Ask, g.Ask} {
		wg.Go(func() { small.Ask(phaseCtx, smallEvery, onnx, send) })
		wg.Go(func() { small.Ask(phaseCtx, smallEvery, python, send) })
		wg.Go(func() { large.Ask(phaseCtx, imageEvery, image, send) })
	}
	wg.Wait()
	for name, good := range map[string]*attack.Good{"64 B": &small, "602 KB": &large} {
		l, failed, err := latencyOf(good)
		if u.Good == nil {
			u.Good = make(map[string]latency)
		}
		u.Good[phase+", "+name] = l
		u.Failed += failed
		if err != nil {
			u.Failure = append(u.Failure, phase+", "+name+": "+err.Error())
		}
		fmt.Fprintf(os.Stderr, "together: %s, %s: %+v, %d failed\n", phase, name, l, failed)
	}
	return errors.Join(broken, ctx.Err())
}
