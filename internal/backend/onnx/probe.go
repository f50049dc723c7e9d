package onnx

import (
	"context"
	"reflect"
	"slices"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A probed is a model that is not loaded yet.
type probed struct {
	backend *Backend
	src     backend.Source

	// What Complete opened; session is nil when it opened nothing or the
	// session was taken.
	opening opening
	session *ort.Session
}

// Complete implements backend.Probed.
//
// It asks a session for the graph and does not read the file: ONNX Runtime
// infers shapes that the file leaves out, and Triton completes from those. The
// session is kept for Open.
func (p *probed) Complete(ctx context.Context, cfg *modelpb.ModelConfig) error {
	if len(cfg.GetInput())+len(cfg.GetBatchInput()) > 0 && len(cfg.GetOutput()) > 0 {
		return nil // nothing to fill in, so there is no need to load the model
	}
	b := p.backend
	limit, err := b.defaultMaxBatch()
	if err != nil {
		return err
	}
	o, err := b.opening(p.src, cfg)
	if err != nil {
		return err
	}
	p.opening = o
	if p.session, err = o.session(); err != nil {
		return err
	}
	graph, err := describe(p.session)
	if err != nil {
		return forModel(p.src.Model, err)
	}
	notes, err := model.Complete(cfg, graph, limit)
	if err != nil {
		return err
	}
	for _, n := range notes {
		b.log.Info(n, "model", p.src.Model)
	}
	return ctx.Err()
}

// Open implements backend.Probed.
func (p *probed) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, _ backend.Host) (backend.Model, error) {
	o, err := p.backend.opening(p.src, cfg)
	if err != nil {
		return nil, err
	}
	s, err := p.sessionFor(o)
	if err != nil {
		return nil, err
	}
	m, err := open(p.backend, o, s, cfg, sig)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		m.Close()
		return nil, err
	}
	o.set.warnUnknown(p.backend.log, p.src.Model)
	p.backend.warnOfNeighbours(p.src, o.path, sig)
	return m, nil
}

// sessionFor returns the session of Complete if it has the same file and
// options, else a new one.
func (p *probed) sessionFor(o opening) (*ort.Session, error) {
	if s := p.session; s != nil && p.opening.stamp == o.stamp && (o.onGPU || reflect.DeepEqual(p.opening.options, o.options)) {
		p.session = nil
		return s, nil
	}
	p.Close()
	return o.session()
}

// Close implements backend.Probed.
func (p *probed) Close() {
	if p.session != nil {
		p.session.Close()
		p.session = nil
	}
}

// An opening is everything that is needed to make a session.
type opening struct {
	lib     *ort.Library
	path    string
	stamp   stamp
	options ort.Options
	set     settings
	onGPU   bool // the first instance is on a GPU: the session only describes the model
}

// opening determines how a model is opened.
func (b *Backend) opening(src backend.Source, cfg *modelpb.ModelConfig) (opening, error) {
	set, err := parseSettings(cfg)
	if err != nil {
		return opening{}, forModel(src.Model, err)
	}
	path, err := modelFile(src, cfg)
	if err != nil {
		return opening{}, err
	}
	at, err := stampOf(path)
	if err != nil {
		return opening{}, status.Errorf(status.Unavailable, "model '%s': %v", src.Model, err)
	}
	lib, err := b.library()
	if err != nil {
		return opening{}, err
	}
	o := opening{lib: lib, path: path, stamp: at, set: set}
	p := firstPlacement(cfg)
	o.onGPU = p.Kind == modelpb.ModelInstanceGroup_KIND_GPU
	o.options, err = set.options(lib, cfg, p, b.gpu)
	return o, err
}

func (o *opening) session() (*ort.Session, error) {
	if o.onGPU { // without the GPU, which takes a second and memory
		plain := o.options
		plain.Providers, plain.Optimization, plain.Intra = nil, ort.OptimizeNothing, 1
		if s, err := o.lib.NewSession(o.path, plain); err == nil {
			return s, nil // otherwise the model has operators that only the GPU has
		}
	}
	s, err := o.lib.NewSession(o.path, o.options)
	if err != nil {
		return nil, status.Errorf(status.Internal, "%v%s", err, notAModel(o.path))
	}
	return s, nil
}

// describe returns the graph of a session's model.
func describe(s *ort.Session) (model.Graph, error) {
	var g model.Graph
	for _, part := range []struct {
		list func() ([]ort.TensorInfo, error)
		to   *[]model.GraphTensor
	}{{s.Inputs, &g.Inputs}, {s.Outputs, &g.Outputs}, {s.Overridable, &g.Overridable}} {
		infos, err := part.list()
		if err != nil {
			return g, status.Errorf(status.Internal, "%v", err)
		}
		if part.to == &g.Overridable { // clients may leave these out, so those with unsupported types are skipped
			infos = slices.DeleteFunc(infos, func(t ort.TensorInfo) bool { return t.Kind != "" || t.Type == tensor.Invalid })
		}
		if *part.to, err = graphOf(infos); err != nil {
			return g, err
		}
	}
	return g, nil
}
