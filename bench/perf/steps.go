package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"shoal/bench/internal/peer"
)

// windows are the flags of a run with three windows of that length, stable or not.
func windows(d time.Duration) []string {
	ms := fmt.Sprint(int(d.Seconds() * 1000 / 1.2)) // a window lasts 1.2 times what it is asked for
	return []string{"-p", ms, "-s", "999"}
}

// longWindow is that of the runs that are not repeated.
const longWindow = 2 * time.Second

// open makes an open loop and returns what it came to, and its send lag.
func open(ctx context.Context, o options, env, prefix []string, rate int, args ...string) (v run, lag func(q float64) time.Duration, err error) {
	args = append(args, "--request-rate-range", fmt.Sprint(rate))
	if v, err = ours(ctx, o, env, prefix, args...); err != nil {
		return v, nil, err
	}
	w := v.result.Levels[0].Merged
	if w.SendLag == nil {
		return v, nil, errors.New("the run has no send lag")
	}
	return v, w.SendLag.Quantile, nil
}

// pace holds an open loop against its rates (criterion P7).
func (r *results) pace(ctx context.Context, o options, s *peer.Server) error {
	for _, rate := range []int{200, 1000, 2000} {
		v, lag, err := open(ctx, o, nil, nil, rate, append(windows(longWindow), "-m", peer.Small.Name, "-u", s.HTTP)...)
		if err != nil {
			return err
		}
		r.most(fmt.Sprintf("open loop of %d/s: rate apart", rate), 100*apart(v.Throughput, float64(rate)), "%", 0.5)
		r.most(fmt.Sprintf("open loop of %d/s: median send lag", rate), float64(lag(0.5))/1e6, "ms", 1.2)
	}
	return nil
}

// body measures with a body of 12.8 KB (criterion P10).
func (r *results) body(ctx context.Context, o options, s *peer.Server) error {
	args := append(windows(longWindow), "-m", "body", "-u", s.HTTP)
	v, err := ours(ctx, o, nil, nil, append(args, "--concurrency-range", fmt.Sprint(cpuCallers))...)
	if err != nil {
		return err
	}
	w := v.result.Levels[0].Merged
	r.least("12.8 KB body, closed loop", v.Throughput, "infer/s", 8000)
	r.tell("12.8 KB body, closed loop: client's share of all CPU", 100*float64(w.ClientCPU)/float64(w.ClientCPU+w.ServerCPU), "%")
	if v, _, err = open(ctx, o, nil, nil, 1000, args...); err != nil {
		return err
	}
	w = v.result.Levels[0].Merged
	r.most("12.8 KB body, 1000/s: client's share of a core", 100*float64(w.ClientCPU)/float64(w.Duration), "%", 20)
	return nil
}

// memory watches the client's memory (criterion P14).
func (r *results) memory(ctx context.Context, o options, s *peer.Server) error {
	v, _, err := open(ctx, o, nil, nil, 2000, append(windows(o.memory/3), "-m", peer.Small.Name, "-u", s.HTTP)...)
	if err != nil {
		return err
	}
	r.most(fmt.Sprintf("client's memory after %v at 2000/s", o.memory), v.RSSMB, "MB", 100)
	return nil
}

// oneCore sends 20,000 requests a second from one core to a server that does
// nothing on another.
func (r *results) oneCore(ctx context.Context, o options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, "taskset", "-c", "1", self, "-serve-trivial")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Signal(os.Interrupt) // it has nothing to lose
		_ = server.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	const rate = 20_000
	v, lag, err := open(ctx, o, []string{"GOMAXPROCS=1"}, []string{"taskset", "-c", "0"}, rate,
		append(windows(longWindow), "-m", trivialModel, "-u", strings.TrimSpace(address))...)
	if err != nil {
		return err
	}
	w := v.result.Levels[0].Merged
	r.most("one core, 20,000/s: rate apart", 100*apart(v.Throughput, rate), "%", 0.5)
	r.most("one core, 20,000/s: send lag p99", float64(lag(0.99))/1e6, "ms", 1)
	r.tell("one core, 20,000/s: send lag p50", float64(lag(0.5))/1e6, "ms")
	r.tell("one core, 20,000/s: client CPU a request", float64(w.ClientCPU)/1e3/float64(w.Requests), "us")
	return nil
}
