package onnx

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// loaded is an open model.
type loaded struct {
	backend     *Backend
	opening     opening
	lib         *ort.Library
	cfg         *modelpb.ModelConfig
	sig         *model.Signature
	inputs      []port
	outputs     []port
	batchInputs []batchInput
	inputNames  *ort.Names // followed by those of the batch inputs
	outputNames *ort.Names
	runOptions  *ort.RunOptions // nil when there are none
	// The memory for a batch of the largest size, if the configuration's
	// dimensions are fixed.
	inputBytes, outputBytes int

	// unbound marks outputs whose declared shape proved wrong; epoch rises
	// with each.
	unbound []atomic.Bool
	epoch   atomic.Uint32

	mu       sync.Mutex // protects the fields below
	sessions []*usedSession

	mostShare func() int // how many instances may share a session
	noGraphs  sync.Once  // the log says why there are no CUDA graphs
	layout    layout     // of convolutions on a GPU
}

// A usedSession is a session and the number of instances that run on it.
type usedSession struct {
	session *ort.Session
	memory  backend.Memory // of its instances' tensors
	kind    modelpb.ModelInstanceGroup_Kind
	gpu     int
	users   int
}

// region returns an empty region in the memory of the session's instances.
func (u *usedSession) region() region {
	return region{memory: u.memory, keep: u.kind == modelpb.ModelInstanceGroup_KIND_GPU}
}

// open returns the model of a session for its first instance. It owns the
// session from then on, also when it fails.
func open(b *Backend, o opening, s *ort.Session, cfg *modelpb.ModelConfig, sig *model.Signature) (*loaded, error) {
	m := &loaded{backend: b, opening: o, lib: o.lib, cfg: cfg, sig: sig}
	m.mostShare = sync.OnceValue(func() int { return mostShare(o.path) })
	p := firstPlacement(cfg)
	first := &usedSession{session: s, kind: p.Kind, gpu: p.GPU}
	m.sessions = []*usedSession{first}
	err := m.prepare(s)
	switch {
	case o.onGPU: // the session was there to describe the model
		s.Close()
		m.sessions = nil
	case err == nil:
		first.memory, err = b.memory(p)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// prepare checks the configuration against the graph and computes what every
// run needs.
func (m *loaded) prepare(s *ort.Session) error {
	g, err := describe(s)
	if err != nil {
		return forModel(m.sig.Name, err)
	}
	if err := model.CheckGraph(m.cfg, g); err != nil {
		return err
	}
	inputs := slices.Concat(g.Inputs, g.Overridable)
	batched := m.sig.MaxBatch > 0
	var names [2][]string
	for _, t := range m.sig.Inputs {
		m.inputs = append(m.inputs, newPort(t, batched, rankOf(inputs, t.Name)))
		names[0] = append(names[0], t.Name)
	}
	m.batchInputs = batchInputs(m.cfg, m.sig)
	for _, b := range m.batchInputs {
		names[0] = append(names[0], b.name)
	}
	scatters := scatters(m.cfg, m.sig, m.inputs)
	for _, t := range m.sig.Outputs {
		x := newPort(t, batched, rankOf(g.Outputs, t.Name))
		if s := scatters[t.Name]; s != nil {
			x = newPort(t, batched, -1) // the graph's shape for it does not matter
			x.scatter = s
		}
		m.outputs = append(m.outputs, x)
		names[1] = append(names[1], t.Name)
	}
	m.inputNames, m.outputNames = ort.NewNames(names[0]), ort.NewNames(names[1])
	m.inputBytes, m.outputBytes = fixedBytes(m.inputs, m.sig.MaxBatch), fixedBytes(m.outputs, m.sig.MaxBatch)
	m.unbound = make([]atomic.Bool, len(m.outputs))
	if len(m.opening.set.run) > 0 {
		m.runOptions, err = m.lib.NewRunOptions(m.opening.set.run)
	}
	return err
}

func rankOf(list []model.GraphTensor, name string) int {
	for _, t := range list {
		if t.Name == name {
			return len(t.Dims)
		}
	}
	return -1
}

// maxReserved bounds the memory that is allocated before it is needed.
const maxReserved = 1 << 28

// fixedBytes returns the memory for a batch of so many rows, 0 when it depends
// on the batch.
func fixedBytes(list []port, rows int) int {
	total := 0
	for i := range list {
		if !list[i].bindable() {
			continue
		}
		size, ok := list[i].boundShape(rows).Bytes(list[i].Type)
		if !ok || size > maxReserved {
			return 0
		}
		total = align(total + int(size))
	}
	if total > maxReserved {
		return 0
	}
	return total
}

// bound reports whether the memory of output i is allocated before a run.
func (m *loaded) bound(i int) bool { return m.outputs[i].bindable() && !m.unbound[i].Load() }

// unbind marks the outputs whose shape after an unbound run differs from the
// slot's set.
func (m *loaded) unbind(s *slot, rows int) error {
	for i, v := range s.set.values {
		if v == 0 {
			continue
		}
		_, dims, err := s.call.Describe(s.values[i], s.dims[:0])
		if err != nil {
			return err
		}
		s.dims = dims
		if want := m.outputs[i].boundShape(rows); !want.Equal(dims) && !m.unbound[i].Swap(true) {
			m.epoch.Add(1)
			m.backend.log.Warn("the shape of an output is not what the model declares; it is left to ONNX Runtime, which is a little slower",
				"model", m.sig.Name, "output", m.outputs[i].Name, "declared", want.String(), "got", dims.String())
		}
	}
	return nil
}

// Start implements backend.Model.
func (m *loaded) Start(_ context.Context, p backend.Placement) (backend.Instance, error) {
	if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU {
		return m.startGPU(p)
	}
	use, err := m.takeSession(p)
	if err != nil {
		return nil, err
	}
	m.backend.pages.instanceStarted()
	return newInstance(m, use), nil
}

// takeSession returns a session for an instance: an unused one, one that can be
// shared, or a new one. Instances that run only on their caller's thread share
// sessions, because runs of a session may overlap. Instances with threads of their
// own each have their own session, or they would wait for each other's threads.
func (m *loaded) takeSession(p backend.Placement) (*usedSession, error) {
	o := m.opening
	var err error
	if o.options, err = o.set.options(m.lib, m.cfg, p, m.backend.gpu); err != nil {
		return nil, err
	}
	share := p.Kind != modelpb.ModelInstanceGroup_KIND_GPU && (o.options.Intra == 1 && !o.options.Parallel || m.lib.GlobalThreads())
	most := 1
	if share {
		most = m.mostShare()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.sessions {
		if u.users < most && sameDevice(u, p) {
			u.users++
			return u, nil
		}
	}
	memory, err := m.backend.memory(p)
	if err != nil {
		return nil, err
	}
	s, err := o.lib.NewSession(o.path, o.options)
	if err != nil {
		return nil, status.Errorf(status.Internal, "instance %s: %v", p.Name, err)
	}
	u := &usedSession{session: s, memory: memory, kind: p.Kind, gpu: p.GPU, users: 1}
	m.sessions = append(m.sessions, u)
	return u, nil
}

const (
	// shareMost is how many instances share a session at most: their runs wait for
	// the locks of its memory.
	shareMost = 4
	// shareFrom is from how many bytes on a model's weights are shared. Smaller ones
	// fit into the cache of each core, and runs of such models are short: they would
	// wait for the locks most of all.
	shareFrom = 1 << 20
	// shareBranches is the same for models with branches, which take the locks for
	// each branch. Larger ones share all the same: each copy would need its memory.
	shareBranches = 16 << 20
)

// mostShare returns how many instances of a model file may share a session. Weights
// that are in memory once are in the processor's cache sooner. With loops ONNX
// Runtime takes its locks in every iteration.
func mostShare(path string) int {
	size := weights(path)
	if size < shareFrom || fileHas(path, "Loop", "Scan") || size < shareBranches && fileHas(path, "If") {
		return 1
	}
	return shareMost
}

// weights returns the bytes of a model's file and of those beside it, which may
// hold its weights. Any may be a link, as in volumes of Kubernetes and in caches of
// downloads.
func weights(path string) (total int64) {
	dir := filepath.Dir(path)
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, f := range files {
		if info, err := os.Stat(filepath.Join(dir, f.Name())); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
	}
	return total
}

// sameDevice reports whether a session runs on the device of a placement.
func sameDevice(u *usedSession, p backend.Placement) bool {
	const gpu = modelpb.ModelInstanceGroup_KIND_GPU
	if u.kind == gpu || p.Kind == gpu {
		return u.kind == p.Kind && u.gpu == p.GPU
	}
	return true
}

// returnSession removes an instance from its session, which is closed when it was the
// last, unless it is the model's only one: the next instance needs one.
func (m *loaded) returnSession(u *usedSession) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.users--; u.users == 0 && len(m.sessions) > 1 {
		m.sessions = slices.DeleteFunc(m.sessions, func(o *usedSession) bool { return o == u })
		u.session.Close()
	}
}

// Close implements backend.Model.
func (m *loaded) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.sessions {
		u.session.Close()
	}
	m.sessions = nil
	if m.runOptions != nil {
		m.runOptions.Close()
		m.runOptions = nil
	}
	return nil
}

// firstPlacement returns where a model's first instance runs.
func firstPlacement(cfg *modelpb.ModelConfig) backend.Placement {
	p := backend.Placement{Name: cfg.GetName(), Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: instanceCount(cfg)}
	if groups := cfg.GetInstanceGroup(); len(groups) > 0 {
		p.Kind, p.Group = groups[0].GetKind(), groups[0]
		if gpus := groups[0].GetGpus(); len(gpus) > 0 {
			p.GPU = int(gpus[0])
		}
	}
	return p
}

// defaultInstances is how many instances a CPU group without a count has, as
// far as Complete can know: if it is wrong, Open makes a session with other
// threads.
const defaultInstances = 2

// instanceCount returns the number of a model's instances.
func instanceCount(cfg *modelpb.ModelConfig) int {
	if len(cfg.GetInstanceGroup()) == 0 {
		return defaultInstances
	}
	n := 0
	for _, g := range cfg.GetInstanceGroup() {
		count := int(g.GetCount())
		if onCPU := g.GetKind() == modelpb.ModelInstanceGroup_KIND_CPU || g.GetKind() == modelpb.ModelInstanceGroup_KIND_AUTO; count < 1 && onCPU {
			count = defaultInstances
		}
		n += max(1, count) * max(1, len(g.GetGpus()))
	}
	return n
}
