package main

import (
	"fmt"
	"strings"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/internal/client"
	"shoal/internal/load"
)

// A gate is the figure of a row that its floor is about.
type gate string

const (
	cpu gate = "CPU/req"
	p50 gate = "p50"
)

// A payload is a way of sending an infer request.
type payload struct {
	name   string
	model  peer.Model
	target func(s *peer.Server, m peer.Model) (load.Target, error)
}

const (
	dynamicBatching = "dynamic_batching { }\n"
	delay100        = "dynamic_batching { max_queue_delay_microseconds: 100 }\n"
)

var (
	jsonSmall   = payload{"http-json", peer.Small, jsonTarget}
	binarySmall = payload{"http-binary", peer.Small, binaryTarget}
	grpcSmall   = payload{"grpc", peer.Small, grpcTarget}
	binaryBig   = payload{"http-binary-602KB", peer.Big, binaryTarget}
	grpcBig     = payload{"grpc-602KB", peer.Big, grpcTarget}

	dynamic = payload{"http-dynamic", batching("identity_dynamic", 1, dynamicBatching), binaryTarget}
	delayed = payload{"http-dynamic-100us", batching("identity_delay", 1, delay100), binaryTarget}
	twice   = payload{"http-dynamic-2", batching("identity_dynamic_2", 2, dynamicBatching), binaryTarget}
)

// batching returns the small identity with room for all callers in one batch.
func batching(name string, instances int, settings string) peer.Model {
	m := peer.Small.As(name, instances, settings)
	m.MaxBatch = 64
	return m
}

// A row is one line of the comparison: a load, and the floor that the ratio of
// Shoal's figure to Triton's may not exceed.
type row struct {
	payload payload
	callers int
	gate    gate
	floor   float64
}

func (r row) name() string { return fmt.Sprintf("%s-c%d", r.payload.name, r.callers) }

var allRows = []row{
	{jsonSmall, 16, cpu, 0.35},
	{jsonSmall, 64, cpu, 0.35},
	{binarySmall, 16, cpu, 0.35},
	{binarySmall, 64, cpu, 0.35},
	{grpcSmall, 16, cpu, 0.5},
	{grpcSmall, 64, cpu, 0.5},
	{binaryBig, 8, cpu, 0.4},
	{grpcBig, 8, cpu, 0.75},
	{jsonSmall, 1, p50, 0.7},
	{binarySmall, 1, p50, 0.7},
	{grpcSmall, 1, p50, 0.7},
	{binaryBig, 1, p50, 0.7},
	{grpcBig, 1, p50, 0.7},
	{dynamic, 16, cpu, 0.35},
	{dynamic, 64, cpu, 0.35},
	{delayed, 16, cpu, 0.35},
	{delayed, 64, cpu, 0.35},
	{twice, 16, cpu, 0.35},
	{twice, 64, cpu, 0.35},
	{dynamic, 1, p50, 0.7},
	{delayed, 1, p50, 0.7},
}

// choose returns the rows whose name contains one of the words, all when there
// are none.
func choose[R interface{ name() string }](rows []R, words []string) []R {
	if len(words) == 0 {
		return rows
	}
	var chosen []R
	for _, r := range rows {
		for _, w := range words {
			if strings.Contains(r.name(), w) {
				chosen = append(chosen, r)
				break
			}
		}
	}
	return chosen
}

// chooseAll returns the rows of both tables, or an error that names them all when
// no word fits any.
func chooseAll(words []string) ([]row, []mlpRow, error) {
	rows, mlps := choose(allRows, words), choose(mlpRows, words)
	if len(rows)+len(mlps) > 0 {
		return rows, mlps, nil
	}
	var names []string
	for _, r := range allRows {
		names = append(names, r.name())
	}
	for _, r := range mlpRows {
		names = append(names, r.name())
	}
	return nil, nil, fmt.Errorf("no row has one of %q in its name; there are: %s", words, strings.Join(names, " "))
}

// load returns what the row does to a server.
func (r row) load(s *peer.Server, warmup, duration time.Duration) (measure.Load, error) {
	target, err := r.payload.target(s, r.payload.model)
	return measure.Load{Model: r.payload.model.Name, Target: target, Callers: r.callers, Warmup: warmup, Duration: duration}, err
}

func jsonTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	path, header, body, err := m.HTTP(client.JSON)
	return load.NewHTTP(s.HTTP, path, header, body, sameJSON(m.Inputs[0])), err
}

func binaryTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	path, header, body, err := m.HTTP(client.Binary)
	return load.NewHTTP(s.HTTP, path, header, body, sameBinary(m.Inputs[0])), err
}

func grpcTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	request, err := m.GRPC()
	return load.NewGRPC(s.GRPC, request, sameGRPC(m.Inputs[0])), err
}
