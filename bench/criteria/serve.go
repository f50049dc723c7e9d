package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"shoal/internal/perf/perftest"
)

// stallSignal makes the server of the fixtures stand still.
const stallSignal = syscall.SIGUSR1

// stallLength is for how long.
const stallLength = time.Second

// serve serves the fixtures until its standard input ends.
func serve(slower float64) error {
	models := perftest.Models()
	for i := range models {
		models[i].Fixed = time.Duration(float64(models[i].Fixed) * slower)
		models[i].Row = time.Duration(float64(models[i].Row) * slower)
	}
	s, err := perftest.Start(context.Background(), models)
	if err != nil {
		return err
	}
	stalls := make(chan os.Signal, 1)
	signal.Notify(stalls, stallSignal)
	go func() { // ends with the process
		for range stalls {
			s.Stall(stallLength)
		}
	}()
	if err := json.NewEncoder(os.Stdout).Encode(addresses{s.HTTP, s.GRPC}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, it is the end
	return s.Close()
}

type addresses struct{ HTTP, GRPC string }

// A server is the fixtures in a process of their own.
type server struct {
	addresses
	command *exec.Cmd
	stdin   io.Closer
}

func startServer(ctx context.Context, slower float64) (*server, error) {
	command, err := self(ctx, "-serve", "-slower", fmt.Sprint(slower))
	if err != nil {
		return nil, err
	}
	s := &server{command: command}
	s.command.Stderr = os.Stderr
	if s.stdin, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.addresses)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("the fixtures did not start: %w", err)
	}
	return s, nil
}

// self returns this program as a command.
func self(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, args...), nil
}

// stall makes the models stand still after a while.
func (s *server) stall(after time.Duration) {
	time.AfterFunc(after, func() { _ = s.command.Process.Signal(stallSignal) }) // a server that is gone shows in the figures
}

func (s *server) close() {
	_ = s.stdin.Close()
	_ = s.command.Wait() // what it says is on standard error
}
