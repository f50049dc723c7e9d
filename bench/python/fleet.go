package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/internal/client"
	"shoal/internal/load"
)

// A fleet is the servers that take part. The Python servers are paused while others
// are measured: LitServe takes a third of a core while it has nothing to do.
type fleet struct {
	o       options
	env     []string
	lines   []string // the commands that were started
	running map[string]*peer.Server
	answers map[string]*agreement // by load
}

func newFleet(o options) *fleet {
	dir, err := filepath.Abs(serversDir(o))
	if err != nil {
		dir = serversDir(o)
	}
	return &fleet{
		o: o, running: make(map[string]*peer.Server), answers: make(map[string]*agreement),
		env: append(slices.Clone(oneThread), "PYTHONPATH="+dir),
	}
}

// oneThread keeps numpy on one core, whichever BLAS it has.
var oneThread = []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"}

// key names the process that a server runs for a load. The Python servers have one
// for each model, so that none pays for one that is idle.
func key(server, load string) string {
	if speaksKServe(server) {
		return server
	}
	return server + "-" + load
}

// speaksKServe tells Shoal and Triton from the Python servers.
func speaksKServe(server string) bool { return server == shoal || server == triton }

// start starts the servers of the rows, one after the other.
func (f *fleet) start(ctx context.Context, rows []row) error {
	for _, r := range rows {
		f.answers[r.load] = &agreement{}
		for _, name := range r.servers {
			k := key(name, r.load)
			if f.running[k] != nil {
				continue
			}
			c, err := f.command(name, r.load)
			if err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, "start", k)
			s, err := peer.Start(ctx, c)
			if err != nil {
				return err
			}
			f.running[k] = s
			f.lines = append(f.lines, c.String())
			if err := pause(name, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause stops a Python server until it is measured.
func pause(name string, s *peer.Server) error {
	if speaksKServe(name) {
		return nil // idle ones take nothing, and their workers are not in their group
	}
	return s.Pause()
}

// command returns how a server is started.
func (f *fleet) command(server, load string) (c peer.Command, err error) {
	python := filepath.Join(f.o.python, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return c, fmt.Errorf("%w; make bench-python installs what is measured", err)
	}
	switch server {
	case shoal:
		c, err = peer.ShoalPython(f.o.shoal, python, f.o.work, models[loadNoop], models[loadMLP], models[loadTritonHTTP])
	case triton:
		c, err = peer.Triton(f.o.triton, f.o.work, models[loadTritonHTTP])
	default:
		k := key(server, load)
		c = peer.Command{
			Name: k, Args: []string{python, filepath.Join(serversDir(f.o), server+"_server.py"), load},
			Log: filepath.Join(f.o.work, k+".log"), Ready: readyPath[server],
		}
	}
	c.Env = append(c.Env, f.env...)
	return c, err
}

// readyPath is what the Python servers answer when they are ready.
var readyPath = map[string]string{mosec: "/", litserve: "/health", uvicorn: "/health"}

// commands returns the commands that were started, as one would type them.
func (f *fleet) commands() []string { return f.lines }

func (f *fleet) close() {
	for k, s := range f.running {
		if err := s.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", k, err)
		}
	}
}

// measure runs a row once on each of its servers; which one is first changes from
// round to round.
func (f *fleet) measure(ctx context.Context, r row, round int) (sampleSet, error) {
	set := make(sampleSet)
	for i := range r.servers {
		name := r.servers[(i+round)%len(r.servers)]
		s, err := f.once(ctx, name, r)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.name(), name, err)
		}
		set[name] = s
	}
	return set, nil
}

func (f *fleet) once(ctx context.Context, name string, r row) (s measure.Sample, err error) {
	server := f.running[key(name, r.load)]
	if err := server.Resume(); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, pause(name, server)) }()
	if err := server.FindWorkers(); err != nil {
		return s, err
	}
	l := measure.Load{Callers: r.callers, Warmup: f.o.warmup, Duration: f.o.duration}
	if l.Target, err = f.target(name, r.load, server); err != nil {
		return s, err
	}
	if speaksKServe(name) {
		l.Model = models[r.load].Name
	}
	return measure.Run(ctx, server, l)
}

// target returns what a load sends to a server: the binary extension or gRPC to
// those that speak the protocol, the bare numbers to the others.
func (f *fleet) target(name, kind string, s *peer.Server) (load.Target, error) {
	m := models[kind]
	same := f.answers[kind]
	if kind == loadTritonGRPC {
		request, err := m.GRPC()
		return load.NewGRPC(s.GRPC, request, same.grpc), err
	}
	if speaksKServe(name) {
		path, header, body, err := m.HTTP(client.Binary)
		return load.NewHTTP(s.HTTP, path, header, body, same.binary), err
	}
	header := []client.Header{{Name: "Content-Type", Value: "application/octet-stream"}}
	return load.NewHTTP(s.HTTP, "/infer", header, m.Inputs[0].Raw(), same.raw), nil
}
