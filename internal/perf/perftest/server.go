// Package perftest serves models of known cost, to compare perf's results with
// the truth. The models sleep rather than compute, so a machine shared with the
// load generator does not disturb them. Tests of perf use it, and the program
// that checks perf's criteria.
package perftest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"shoal/internal/arrivals"
	"shoal/internal/backend"
	"shoal/internal/engine"
	"shoal/internal/protocol/kservegrpc"
	"shoal/internal/protocol/kservehttp"
)

// A Model sleeps: Fixed for each run and Row for each row of it.
type Model struct {
	Name       string
	Fixed, Row time.Duration
	MaxBatch   int  // 0: none
	Batching   bool // the server forms batches
	Triton     bool // by Triton's rules
	FailEvery  int  // one request in this many fails
	Instances  int  // 0: one
	Shape      string
}

// Cost returns how long a run of rows takes.
func (m Model) Cost(rows float64) time.Duration {
	return m.Fixed + time.Duration(rows*float64(m.Row))
}

const ms = time.Millisecond

// Models are the fixtures of perf's criteria.
func Models() []Model {
	return []Model{
		{Name: "noop", MaxBatch: 64, Instances: 4, Shape: "3200"},
		{Name: "curve_flat", Fixed: 2 * ms, Row: 70 * time.Microsecond, MaxBatch: 8, Batching: true},
		{Name: "curve_flat_exact", Fixed: 2 * ms, Row: 70 * time.Microsecond, MaxBatch: 8, Batching: true, Triton: true},
		{Name: "curve_mid", Fixed: 2 * ms, Row: ms / 2, MaxBatch: 32, Batching: true},
		{Name: "curve_linear", Fixed: ms / 10, Row: 3 * ms / 2, MaxBatch: 8, Batching: true},
		{Name: "stall", Fixed: ms / 5, MaxBatch: 8, Instances: 8},
		{Name: "flaky", Fixed: ms / 2, MaxBatch: 8, Instances: 4, FailEvery: 100},
		{Name: "varied", MaxBatch: 16, Instances: 2, Shape: "-1"},
	}
}

func (m Model) config() string {
	shape := m.Shape
	if shape == "" {
		shape = "16"
	}
	text := fmt.Sprintf("backend: \"sleeping\"\nmax_batch_size: %d\n", m.MaxBatch)
	text += fmt.Sprintf("input { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ %s ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ %s ] }\n", shape, shape)
	text += fmt.Sprintf("instance_group { kind: KIND_CPU count: %d }\n", max(1, m.Instances))
	if m.Batching {
		text += "dynamic_batching { }\n"
	}
	if m.Triton {
		text += "parameters { key: \"SHOAL_BATCHING\" value { string_value: \"triton\" } }\n"
	}
	for name, v := range map[string]int64{"fixed_us": m.Fixed.Microseconds(), "row_us": m.Row.Microseconds(), "fail_every": int64(m.FailEvery)} {
		text += fmt.Sprintf("parameters { key: %q value { string_value: \"%d\" } }\n", name, v)
	}
	return text
}

// A Server serves models over HTTP and gRPC on ports of its own.
type Server struct {
	HTTP, GRPC string // addresses
	// Tap reports arrivals.
	Tap arrivals.Tap

	dir    string
	stalls *stalls
	close  []func(context.Context) error
}

// Start serves these models.
func Start(ctx context.Context, models []Model) (s *Server, err error) {
	s = &Server{stalls: &stalls{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "shoal-perftest-"); err != nil {
		return s, err
	}
	for _, m := range models {
		if err := os.MkdirAll(filepath.Join(s.dir, m.Name, "1"), 0o755); err != nil {
			return s, err
		}
		if err := os.WriteFile(filepath.Join(s.dir, m.Name, "config.pbtxt"), []byte(m.config()), 0o644); err != nil {
			return s, err
		}
	}
	e, err := engine.Start(ctx, engine.Options{
		Name: "perftest", Version: "1", Repositories: []string{s.dir}, Backends: []backend.Backend{sleeping{stalls: s.stalls}},
		AllOrNothing: true, Arrived: s.Tap.Arrived, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return s, err
	}
	s.close = append(s.close, e.Close)
	return s, s.listen(e)
}

func (s *Server) listen(e *engine.Engine) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h, err := kservehttp.Start(kservehttp.Options{}, e, ln)
	if err != nil {
		return err
	}
	s.HTTP, s.close = ln.Addr().String(), append(s.close, h.Close)
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	g := kservegrpc.Start(kservegrpc.Options{}, e, ln)
	s.GRPC, s.close = ln.Addr().String(), append(s.close, g.Close)
	return nil
}

// Stall stops every model for d from now on.
func (s *Server) Stall(d time.Duration) { s.stalls.begin(d) }

// Close ends the server after its requests in flight.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i](ctx))
	}
	s.close = nil
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
