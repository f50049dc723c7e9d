package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"shoal/bench/internal/peer"
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

var (
	jsonSmall   = payload{"http-json", peer.Small, jsonTarget}
	binarySmall = payload{"http-binary", peer.Small, binaryTarget}
	grpcSmall   = payload{"grpc", peer.Small, grpcTarget}
	binaryBig   = payload{"http-binary-602KB", peer.Big, binaryTarget}
	grpcBig     = payload{"grpc-602KB", peer.Big, grpcTarget}
)

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
}

// choose returns the rows whose name contains one of the words, all when there
// are none.
func choose(rows []row, words []string) ([]row, error) {
	if len(words) == 0 {
		return rows, nil
	}
	var chosen []row
	for _, r := range rows {
		for _, w := range words {
			if strings.Contains(r.name(), w) {
				chosen = append(chosen, r)
				break
			}
		}
	}
	if len(chosen) == 0 {
		var names []string
		for _, r := range rows {
			names = append(names, r.name())
		}
		return nil, fmt.Errorf("no row has %q in its name; there are: %s", words, strings.Join(names, " "))
	}
	return chosen, nil
}

// tensorFor returns the input of a model: one row of numbers between 0 and 1 with
// as many digits as a float32 has, the same ones every time.
func tensorFor(m peer.Model) load.Tensor {
	rng := rand.New(rand.NewPCG(7, 7))
	data := make([]float32, m.Width)
	for i := range data {
		data[i] = rng.Float32()
	}
	return load.Tensor{Name: peer.Input, Shape: []int64{1, int64(m.Width)}, Data: data}
}

func jsonTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	t := tensorFor(m)
	header, body, err := load.JSONInfer(t)
	return load.NewHTTP(s.HTTP, load.InferPath(m.Name), header, body, sameJSON(t)), err
}

func binaryTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	t := tensorFor(m)
	header, body, err := load.BinaryInfer(t)
	return load.NewHTTP(s.HTTP, load.InferPath(m.Name), header, body, sameBinary(t)), err
}

func grpcTarget(s *peer.Server, m peer.Model) (load.Target, error) {
	t := tensorFor(m)
	request, err := load.GRPCInfer(m.Name, t)
	return load.NewGRPC(s.GRPC, request, sameGRPC(t)), err
}
