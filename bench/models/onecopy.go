package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"shoal/bench/internal/peer"
	"shoal/internal/backend"
	"shoal/internal/cli"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// serveCommand as the first argument makes this program a Shoal server whose ONNX
// models, which must be the same file in different settings, share the instances of the
// first of them. Two copies of one model differ in speed, by up to a tenth or more where
// the weights just fit into a core's cache: it depends on which pages of memory they got.
// The best of twenty settings with copies of their own is the luckiest copy.
const serveCommand = "serve"

// serve runs that server and returns the exit code.
func serve(args []string) int {
	return cli.ServeWith(func(b backend.Backend) backend.Backend {
		if b.Name() != "onnxruntime" {
			return b
		}
		return &oneCopy{Backend: b}
	}, args, os.Stdout, os.Stderr)
}

// oneCopyServer returns the command that serves the models with that server.
func oneCopyServer(work string, models ...peer.Model) (peer.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return peer.Command{}, err
	}
	repository := filepath.Join(work, fmt.Sprintf("onecopy-models-%d", len(models)))
	if err := peer.WriteShoal(repository, models...); err != nil {
		return peer.Command{}, err
	}
	return peer.ShoalRepository(self, work, repository)
}

// A oneCopy is a backend that opens one model for all.
type oneCopy struct {
	backend.Backend

	mu        sync.Mutex // protects the fields below
	model     backend.Model
	instances []backend.Instance
}

// Probe implements backend.Backend.
func (o *oneCopy) Probe(src backend.Source) backend.Probed {
	return &sharedProbed{o.Backend.Probe(src), o}
}

type sharedProbed struct {
	backend.Probed
	from *oneCopy
}

// Open implements backend.Probed.
func (p *sharedProbed) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
	o := p.from
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.model == nil {
		m, err := p.Probed.Open(ctx, cfg, sig, host)
		if err != nil {
			return nil, err
		}
		o.model = m
	}
	return &sharedModel{from: o}, nil
}

// A sharedModel starts the instances of the first model. They are there until the
// process ends.
type sharedModel struct {
	from    *oneCopy
	started int
}

// Start implements backend.Model.
func (m *sharedModel) Start(ctx context.Context, p backend.Placement) (backend.Instance, error) {
	o := m.from
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.started == len(o.instances) {
		in, err := o.model.Start(ctx, p)
		if err != nil {
			return nil, err
		}
		o.instances = append(o.instances, &sharedInstance{Instance: in})
	}
	m.started++
	return o.instances[m.started-1], nil
}

// Close implements backend.Model.
func (*sharedModel) Close() error { return nil }

// A sharedInstance runs the batches of all models. One model is loaded at a time, so
// nobody waits for the mutex but when the load goes over to another.
type sharedInstance struct {
	backend.Instance
	mu sync.Mutex
}

// Run implements backend.Instance.
func (in *sharedInstance) Run(b *infer.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.Instance.Run(b)
}

// ComputesOnThread makes it backend.OnThread, as instances of ONNX models are.
func (*sharedInstance) ComputesOnThread() {}

// Close implements backend.Instance.
func (*sharedInstance) Close() error { return nil }
