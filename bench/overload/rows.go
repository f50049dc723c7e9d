package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

// A row is a model with a queue policy, and a way of asking it.
type row struct {
	name   string
	about  string
	model  peer.Model
	sleeps bool // run by the identity backend, which sleeps, and not by ONNX Runtime
	target func(s *peer.Server, m peer.Model) (load.Target, error)
	// callers in a closed loop keep the instance busy and fit into the queue.
	callers int
	// crowd is how many callers the open loop has: a few times what is under way
	// when the queue is full and a batch runs.
	crowd int
	// timeout is how long requests wait that are refused because their time is
	// over; those that a full queue refuses wait for nothing, and it is zero.
	timeout time.Duration
}

const (
	// mlpRows in a request make it dear: at one row the generator and the server
	// would need the second of two cores for requests that are only refused.
	mlpRows = 16
	// mlpQueue is two batches: the instance never waits for requests, and the
	// last in the queue is served in a few executions' time.
	mlpQueue = 8
	mlpCrowd = 64
	// sleepMS and sleepBatch make a model of 1600 requests a second at no cost.
	sleepMS, sleepBatch = 5, 8
	// waitAtMost is what the requests of the timeout row may wait; the queue
	// holds far more than are served in that time.
	waitAtMost = 100 * time.Millisecond
)

// allRows returns the rows.
func allRows() []row {
	full := policy(mlpQueue, time.Second)
	mlp := peer.MLP().As("mlp", 1, full)
	mlp.Inputs, mlp.Answer = []peer.Tensor{repeat(mlp.Inputs[0], mlpRows)}, mlpRows*mlp.Answer
	sleep := sleeping("sleep", policy(4*sleepBatch, time.Second))
	late := sleeping("late", policy(100_000, waitAtMost))
	return []row{
		{name: "mlp-http", about: "MLP on one core, 16 rows a request; a queue of 8", model: mlp, target: binary, callers: mlpQueue, crowd: mlpCrowd},
		{name: "mlp-grpc", about: "the same over gRPC", model: mlp, target: grpc, callers: mlpQueue, crowd: mlpCrowd},
		{name: "sleep-http", about: "5 ms of sleep for up to 8 rows; a queue of 32", model: sleep, sleeps: true, target: binary, callers: 4 * sleepBatch, crowd: 4 * 4 * sleepBatch},
		{name: "timeout-http", about: "the same; the queue takes all, but 100 ms is the longest wait", model: late, sleeps: true, target: binary, callers: 2 * sleepBatch, crowd: 512, timeout: waitAtMost},
	}
}

// repeat returns the tensor with its row so many times.
func repeat(t peer.Tensor, rows int) peer.Tensor {
	t.Shape = append([]int64{int64(rows)}, t.Shape[1:]...)
	t.Data = slices.Repeat(t.Data, rows)
	return t
}

func policy(size int, timeout time.Duration) string {
	return fmt.Sprintf("dynamic_batching { default_queue_policy { max_queue_size: %d default_timeout_microseconds: %d timeout_action: REJECT } }\n",
		size, timeout.Microseconds())
}

// sleeping returns a model of the identity backend.
func sleeping(name, settings string) peer.Model {
	m := peer.Identity(name, 16)
	m.Settings = fmt.Sprintf("parameters { key: \"execute_delay_ms\" value { string_value: \"%d\" } }\n%s", sleepMS, settings)
	return m
}

// command returns how the row's model is served.
func (r row) command(shoal, work string) (peer.Command, error) {
	c, err := peer.Shoal(shoal, work, r.model)
	if err != nil || !r.sleeps {
		return c, err
	}
	// The repository is one for ONNX Runtime; the identity backend needs no
	// more than another name in the configuration.
	path := filepath.Join(c.Args[len(c.Args)-1], r.model.Name, "config.pbtxt")
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	return c, os.WriteFile(path, []byte(strings.Replace(string(b), "onnxruntime", "identity", 1)), 0o644)
}

// choose returns the rows whose name contains one of the words, all when there
// are none.
func choose(rows []row, words []string) ([]row, error) {
	var chosen []row
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
		for _, w := range words {
			if strings.Contains(r.name, w) {
				chosen = append(chosen, r)
				break
			}
		}
	}
	if len(words) == 0 {
		return rows, nil
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no row has %q in its name; there are: %s", words, strings.Join(names, " "))
	}
	return chosen, nil
}

func binary(s *peer.Server, m peer.Model) (load.Target, error) { return measure.Binary(s.HTTP, m) }

func grpc(s *peer.Server, m peer.Model) (load.Target, error) {
	request, err := m.GRPC()
	if err != nil {
		return nil, err
	}
	// grpc-go's client would take half as much of the cores again as this one.
	return load.NewH2(s.GRPC, request, nil)
}
