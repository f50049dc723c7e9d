package main

import "shoal/bench/internal/peer"

const dynamic = "dynamic_batching { }\n"

var (
	small = peer.Small.As("identity_dynamic", 1, dynamic)
	mlp   = peer.MLP().As("mlp", 1, dynamic)
)

// The loads, as flags of perf; the protocol comes first.
var (
	nativeLoads = [][]string{
		{"-i", "http", "-m", "identity", "--concurrency-range", "1"},
		{"-i", "http", "-m", "identity", "--concurrency-range", "16"},
		{"-i", "http", "-m", "identity", "--concurrency-range", "16", "--input-tensor-format", "json", "--output-tensor-format", "json"},
		{"-i", "http", "-m", "identity", "--request-rate-range", "5000"},
		{"-i", "http", "-m", "identity_dynamic", "--concurrency-range", "16"},
		{"-i", "http", "-m", "identity_dynamic", "--concurrency-range", "256"},
		{"-i", "http", "-m", "identity_big", "--concurrency-range", "4"},
		{"-i", "http", "-m", "mlp", "--concurrency-range", "16"},
		{"-i", "grpc", "-m", "identity", "--concurrency-range", "1"},
		{"-i", "grpc", "-m", "identity", "--concurrency-range", "16"},
		{"-i", "grpc", "-m", "identity", "--concurrency-range", "16", "--async", "--streaming"},
		{"-i", "grpc", "-m", "identity_dynamic", "--concurrency-range", "64"},
		{"-i", "grpc", "-m", "identity_big", "--concurrency-range", "4"},
	}
	pythonLoads = [][]string{
		{"-i", "http", "-m", "identity", "--concurrency-range", "1"},
		{"-i", "http", "-m", "identity_dynamic", "--concurrency-range", "32"},
		{"-i", "grpc", "-m", "identity_dynamic", "--concurrency-range", "8"},
	}
)
