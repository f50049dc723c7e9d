package main

import (
	"embed"
	"os"
	"path/filepath"

	"shoal/bench/internal/peer"
)

// files has the other servers' programs, the models that all of them share, and
// Shoal's.
//
//go:embed servers/*.py
var files embed.FS

func serversDir(o options) string { return filepath.Join(o.work, "python-servers") }

// writeServers makes dir anew with the programs in it.
func writeServers(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := files.ReadDir("servers")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.WriteFile(filepath.Join(dir, e.Name()), []byte(source(e.Name())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// source returns one of the embedded files.
func source(name string) string {
	b, err := files.ReadFile("servers/" + name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}

// The most rows of a batch, for every server that batches.
const maxBatch = 32

// models are what Shoal serves, by the name of the load. The one that Triton serves
// too is the same file.
var models = map[string]peer.Model{
	loadNoop:       batching(loadNoop, 16),
	loadMLP:        batching(loadMLP, 256),
	loadTritonHTTP: peer.Small,
	loadTritonGRPC: peer.Small,
}

// answerWidth is how many numbers noop and mlp answer a row with.
const answerWidth = 16

func batching(name string, width int) peer.Model {
	return peer.Model{
		Name: name, MaxBatch: maxBatch, Instances: 1, Settings: "dynamic_batching { }\n",
		Tensors: peer.Ports(peer.Input, width, peer.Output, answerWidth),
		Inputs:  []peer.Tensor{peer.Random(peer.Input, int64(width))},
		Python:  source("shoal_" + name + ".py"),
	}
}
