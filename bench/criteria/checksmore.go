package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"shoal/internal/perf/judge"
	"shoal/internal/perf/result"
)

func cheap(ctx context.Context, b *bench) (string, bool, error) {
	d, closed, err := b.level(ctx, "noop", append(quick, "--concurrency-range", "16", "-v", "--allow-unstable")...)
	if err != nil {
		return "", false, err
	}
	_, open, err := b.level(ctx, "noop", append(quick, "--request-rate-range", "1000", "--allow-unstable")...)
	if err != nil {
		return "", false, err
	}
	throughput, core := closed.Merged.Throughput(), open.Merged.ClientShare(1)
	ok := throughput >= 8000 && core <= 0.2 && strings.Contains(d.out, "| CPU: client")
	return fmt.Sprintf("%.0f infer/s, client %.0f%% of the machine; at 1000/s %.1f%% of a core", throughput, 100*closed.Merged.ClientShare(d.result.Host.CPUs), 100*core), ok, nil
}

func flaky(ctx context.Context, b *bench) (string, bool, error) {
	args := append(quick, "--concurrency-range", "4", "--allow-unstable")
	d, l, err := b.level(ctx, "flaky", args...)
	if err != nil {
		return "", false, err
	}
	allowed, err := b.perf(ctx, "flaky", append(args, "--max-error-rate", "5%")...)
	if err != nil {
		return "", false, err
	}
	share := l.Merged.FailedShare()
	ok := d.result.Cut == "" && share >= 0.005 && share <= 0.015 && d.code == 99 && allowed.code == 0 &&
		strings.Contains(d.out, "dropped a row") && strings.Contains(d.out, "is busy")
	return fmt.Sprintf("share %.2f%%, %d causes, exit %d; with --max-error-rate 5%% exit %d", 100*share, len(l.Merged.Errors), d.code, allowed.code), ok, nil
}

// memory looks at the most memory that the process had in a run of some length;
// what it keeps for each request would show in it.
func memory(ctx context.Context, b *bench) (string, bool, error) {
	command := exec.CommandContext(ctx, b.shoal, "perf", "-m", "noop", "-u", b.server.HTTP, "--request-rate-range", "2000",
		"-p", fmt.Sprint(int(b.memoryTime.Seconds()*1000/1.2)), "-r", "1", "--allow-unstable") // a window lasts 1.2 times what it is asked for
	if out, err := command.CombinedOutput(); err != nil {
		return "", false, fmt.Errorf("%w: %s", err, out)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return "", false, fmt.Errorf("the system does not say")
	}
	mb := float64(usage.Maxrss) / 1024
	return fmt.Sprintf("%.0f MB after %v", mb, b.memoryTime), mb <= 100, nil
}

// compare measures two servers of one build and one that is 10 % slower, in
// turns.
func compare(ctx context.Context, b *bench) (string, bool, error) {
	slow, err := startServer(ctx, 1.1)
	if err != nil {
		return "", false, err
	}
	defer slow.close()
	args := []string{"--concurrency-range", "8", "-p", "1000", "--allow-unstable"}
	same, slower := 0, 0
	const pairs = 20
	for range pairs {
		var runs [3]*done
		for i, s := range []*server{b.server, b.server, slow} {
			if runs[i], err = b.perfAt(ctx, s, "curve_mid", args...); err != nil {
				return "", false, err
			}
		}
		verdict := func(before, after *done) string {
			c, err := judge.Compare(judge.Side{Names: []string{"a"}, Results: []*result.Result{before.result}}, judge.Side{Names: []string{"b"}, Results: []*result.Result{after.result}}, 0.03)
			if err != nil {
				return err.Error()
			}
			return c.Verdict
		}
		if verdict(runs[0], runs[1]) == judge.NoDifference {
			same++
		}
		if verdict(runs[0], runs[2]) == judge.Slower {
			slower++
		}
	}
	return fmt.Sprintf("no difference in %d of %d, slower in %d of %d", same, pairs, slower, pairs), same >= 18 && slower >= 18, nil
}

// capacity holds the rate that is found against a grid of rates, 1 % apart, each
// measured for itself.
func capacity(ctx context.Context, b *bench) (string, bool, error) {
	begin := time.Now()
	d, err := b.perf(ctx, "curve_mid", "--find-capacity", "p99<20ms")
	if err != nil {
		return "", false, err
	}
	took := time.Since(begin)
	if d.result.Capacity == nil || d.result.Capacity.Rate == 0 {
		return "", false, fmt.Errorf("no capacity found: %s", d.stderr)
	}
	found := d.result.Capacity.Rate
	best, err := grid(ctx, b, found)
	if err != nil {
		return "", false, err
	}
	off := found/best - 1
	ok := took <= 40*time.Second && math.Abs(off) <= 0.05
	return fmt.Sprintf("%.0f/s in %.0f s; the grid's best is %.0f/s, %+.1f%%", found, took.Seconds(), best, 100*off), ok, nil
}

// grid measures rates around one, 1 % apart, and returns the highest from the
// lowest up that met the goal before two in a row did not.
func grid(ctx context.Context, b *bench, around float64) (float64, error) {
	best, missed := 0.0, 0
	for step := -8; step <= 12 && missed < 2; step++ {
		rate := math.Round(around * math.Pow(1.01, float64(step)))
		d, err := b.perf(ctx, "curve_mid", "--request-rate-range", fmt.Sprint(rate), "-p", "4000", "-r", "1", "--slo", "p99<20ms", "--allow-unstable")
		if err != nil {
			return 0, err
		}
		if d.result.GoalsMet() {
			best, missed = rate, 0
		} else {
			missed++
		}
	}
	return best, nil
}
