package measure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

// A Tool is a load generator that is a program of its own.
type Tool struct {
	Name    string // what errors call it
	Path    string // the program; looked up on PATH when it has no slash
	Install string // how to get it, for the error that says it is missing
	// prepare writes what the program needs into a folder and returns its
	// arguments.
	prepare func(folder string, s *peer.Server, m peer.Model, callers int, duration time.Duration) ([]string, error)
	// parse reads what the program has printed.
	parse func(output []byte) (Outcome, error)
}

// Find looks the program up, so that a benchmark notices before it runs that it
// is missing.
func (t Tool) Find() error {
	if _, err := exec.LookPath(t.Path); err != nil {
		return fmt.Errorf("%s: %w; %s", t.Name, err, t.Install)
	}
	return nil
}

// Run loads the model of a server with the program. The warm-up is made by our
// own generator, the target of which is given. A request that fails is an error.
func (t Tool) Run(ctx context.Context, s *peer.Server, m peer.Model, l Load) (Sample, error) {
	g, err := load.Open(ctx, l.Target, l.Callers)
	if err != nil {
		return Sample{}, fmt.Errorf("%s, %s: %w", s.Name, m.Name, err)
	}
	if l.Warmup > 0 {
		_, err = g.Run(ctx, load.Limit{Duration: l.Warmup})
	}
	g.Close()
	if err != nil {
		return Sample{}, err
	}
	folder, err := os.MkdirTemp("", "bench-"+t.Name)
	if err != nil {
		return Sample{}, err
	}
	defer os.RemoveAll(folder)
	args, err := t.prepare(folder, s, m, l.Callers, l.Duration)
	if err != nil {
		return Sample{}, err
	}
	return observe(ctx, s, l.Model, func() (Outcome, error) { return t.exec(ctx, args) })
}

func (t Tool) exec(ctx context.Context, args []string) (Outcome, error) {
	cmd := exec.CommandContext(ctx, t.Path, args...)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	output, err := cmd.Output()
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: %w: %.500s", cmd, err, faults.Bytes())
	}
	o, err := t.parse(output)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	o.ClientCPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return o, nil
}

// writeFile writes a file into a folder and returns its path.
func writeFile(folder, name string, content []byte) (string, error) {
	path := filepath.Join(folder, name)
	return path, os.WriteFile(path, content, 0o644)
}
