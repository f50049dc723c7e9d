package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"shoal/bench/internal/peer"
)

// A Paused is a load generator that loads a server only in slices of time, with the
// same connections in all of them. Servers that are loaded in turn in short slices are
// compared at nearly the same time: a machine whose speed changes within seconds changes
// it for all.
type Paused struct {
	server *peer.Server
	model  string
	cmd    *exec.Cmd
	folder string
}

// longest is how long a generator loads at most: it is stopped before.
const longest = 24 * time.Hour

// Pause starts the program, which connects and then stands still. The caller closes it.
func (t Tool) Pause(ctx context.Context, s *peer.Server, m peer.Model, callers int) (_ *Paused, err error) {
	p := &Paused{server: s, model: m.Name}
	if p.folder, err = os.MkdirTemp("", "bench-"+t.Name); err != nil {
		return nil, err
	}
	args, err := t.prepare(p.folder, s, m, callers, longest)
	if err == nil {
		p.cmd = exec.CommandContext(ctx, t.Path, args...)
		// In a group of its own: the system lets the stopped processes of a group go on
		// when the shell ends that it was started from.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = p.cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(p.folder) // the first error is more important
		return nil, err
	}
	if err := p.answered(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return p, p.cmd.Process.Signal(syscall.SIGSTOP)
}

// answered returns when the generator has its first answers.
func (p *Paused) answered(ctx context.Context) error {
	before, err := readStats(ctx, p.server.HTTP, p.model)
	for begin := time.Now(); err == nil && time.Since(begin) < 10*time.Second; {
		time.Sleep(10 * time.Millisecond)
		var now stats
		if now, err = readStats(ctx, p.server.HTTP, p.model); now.Inferences > before.Inferences {
			return err
		}
	}
	if err == nil {
		err = ErrNoAnswer
	}
	return err
}

// Slice loads the server for a moment, of which the beginning is not counted: a batch must
// end in it. It sees what the server counts: no latencies.
func (p *Paused) Slice(ctx context.Context, settle, duration time.Duration) (Sample, error) {
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return Sample{}, err
	}
	time.Sleep(settle)
	s, err := p.slice(ctx, begin, duration)
	return s, errors.Join(err, p.cmd.Process.Signal(syscall.SIGSTOP))
}

func (p *Paused) slice(ctx context.Context, begin time.Time, duration time.Duration) (Sample, error) {
	host := readCPUTime()
	clock, err := readClocks(p.server)
	if err != nil {
		return Sample{}, err
	}
	before, err := readStats(ctx, p.server.HTTP, p.model)
	if err != nil {
		return Sample{}, err
	}
	time.Sleep(duration)
	after, err := readStats(ctx, p.server.HTTP, p.model)
	if err != nil {
		return Sample{}, err
	}
	clockAfter, err := readClocks(p.server)
	if err != nil {
		return Sample{}, err
	}
	n, rate := after.Inferences-before.Inferences, after.rate(before)
	if rate == 0 || before.Last < uint64(begin.UnixMilli()) { // that batch was of an earlier slice
		return Sample{}, ErrNoAnswer
	}
	s := Sample{
		Requests: int64(n), Throughput: rate,
		CPU: micros(clockAfter.server-clock.server) / float64(n), WorkerCPU: micros(clockAfter.workers-clock.workers) / float64(n),
		Stolen: readCPUTime().since(host),
	}
	s.MeanBatch, s.Queue, s.Infer = after.since(before)
	return s, nil
}

// Close ends the program.
func (p *Paused) Close() {
	_ = p.cmd.Process.Kill() // it has ended, or ends now: a process that stands still can be killed
	_ = p.cmd.Wait()         // it was killed
	_ = os.RemoveAll(p.folder)
}
