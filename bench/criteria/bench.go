package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"shoal/internal/perf/result"
)

// A bench runs the command under test against the fixtures.
type bench struct {
	shoal      string
	server     *server
	memoryTime time.Duration
}

// A done run is what shoal perf left.
type done struct {
	result      *result.Result
	out, stderr string
	code        int
}

// level measures a model of the fixtures at one level.
func (b *bench) level(ctx context.Context, model string, args ...string) (*done, *result.Level, error) {
	d, err := b.perf(ctx, model, args...)
	if err != nil {
		return nil, nil, err
	}
	if len(d.result.Levels) != 1 || d.result.Levels[0].Merged == nil {
		return nil, nil, fmt.Errorf("the run has not one level: exit code %d: %s", d.code, d.stderr)
	}
	return d, &d.result.Levels[0], nil
}

// perf measures a model of the fixtures.
func (b *bench) perf(ctx context.Context, model string, args ...string) (*done, error) {
	return b.perfAt(ctx, b.server, model, args...)
}

func (b *bench) perfAt(ctx context.Context, s *server, model string, args ...string) (*done, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file, d := filepath.Join(dir, "result.json"), &done{}
	d.out, d.stderr, d.code, err = b.run(ctx, append([]string{"perf", "-m", model, "-u", s.HTTP, "--json", file}, args...)...)
	if err != nil {
		return d, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return d, fmt.Errorf("%w; exit code %d: %s", err, d.code, d.stderr)
	}
	d.result, err = result.Parse(data)
	return d, err
}

// run runs the binary and returns what it printed and its exit code.
func (b *bench) run(ctx context.Context, args ...string) (out, stderr string, code int, err error) {
	command := exec.CommandContext(ctx, b.shoal, args...)
	var o, e bytes.Buffer
	command.Stdout, command.Stderr = &o, &e
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if err != nil {
		return "", "", 0, err
	}
	return o.String(), e.String(), command.ProcessState.ExitCode(), nil
}
