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

	"shoal/bench/internal/attack"
	"shoal/bench/internal/report"
	"shoal/internal/load"
)

// referenceEnv has this program be grpc-go's server.
const referenceEnv = "SHOAL_ATTACK_REFERENCE"

// A reference is grpc-go's server in a process of its own.
type reference struct {
	cmd     *exec.Cmd
	address string
}

func startReference() (*reference, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &reference{cmd: exec.Command(self)}
	r.cmd.Env = append(os.Environ(), referenceEnv+"=1")
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the reference server: %w", err), r.close())
	}
	r.address = strings.TrimSpace(line)
	return r, nil
}

func (r *reference) close() error {
	err := r.cmd.Process.Kill()
	r.cmd.Wait() // it was killed, and says so
	return err
}

// Bursts for the CPU that a flood costs. They are so large that the dearer of the
// two servers takes a tenth of a second, within limits.
const (
	rounds        = 3
	smallestBurst = 64 << 10
	largestBurst  = 2 << 20
	burstCPU      = 100 * time.Millisecond
	burstTime     = 5 * time.Second // at most
)

// compare has both servers take the same bursts in turn and fills in what they
// cost each: the medians of the rounds, and that of their ratios.
func compare(ctx context.Context, flood *attack.Flood, server load.Process, grpc string, r *reference, f *figure) error {
	other := load.Watch(r.cmd.Process.Pid)
	pair := func(size int64) (ours, theirs float64, err error) {
		if ours, err = burst(ctx, flood, server, grpc, size); err != nil {
			return 0, 0, fmt.Errorf("shoal: %w", err)
		}
		if theirs, err = burst(ctx, flood, other, r.address, size); err != nil {
			return 0, 0, fmt.Errorf("grpc-go: %w", err)
		}
		return ours, theirs, nil
	}
	a, b, err := pair(smallestBurst)
	if err != nil {
		return err
	}
	size := int64(min(largestBurst, max(smallestBurst, float64(burstCPU)/max(a, b, 1))))
	var ours, theirs, ratios []float64
	for range rounds {
		a, b, err := pair(size)
		if err != nil {
			return err
		}
		ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, a/b)
	}
	f.Burst, f.Reference, f.Ratio = report.Median(ours), report.Median(theirs), report.Median(ratios)
	return nil
}

// burst returns the server's CPU nanoseconds to a byte of the flood.
func burst(ctx context.Context, flood *attack.Flood, server load.Process, address string, size int64) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, burstTime)
	defer cancel()
	var err error
	sent, spent := flood.Burst(ctx, attack.Target{GRPC: address}, size, func() time.Duration {
		now, e := server.CPU()
		err = errors.Join(err, e)
		return now
	})
	if err != nil {
		return 0, err
	}
	if sent == 0 {
		return 0, fmt.Errorf("%s took nothing of the flood", address)
	}
	return float64(spent) / float64(sent), nil
}
