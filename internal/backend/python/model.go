package python

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"

	"shoal/internal/backend"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/worker"
)

// loaded is an open model.
type loaded struct {
	backend *Backend
	src     backend.Source
	cfg     *modelpb.ModelConfig
	sig     *model.Signature
	set     settings
	inputs  []port
	outputs []port
	// decoupled models give any number of responses, to the requests' streams.
	decoupled bool
	workers   worker.Group
	host      backend.Host
	calls     sync.WaitGroup // requests of its workers to other models
}

// Open implements backend.Probed.
func (p probed) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
	b, src := p.backend, p.src
	set, err := b.settings(src, cfg)
	if err != nil {
		return nil, forModel(src.Model, err)
	}
	m := &loaded{backend: b, src: src, cfg: cfg, sig: sig, set: set, host: host, decoupled: cfg.GetModelTransactionPolicy().GetDecoupled()}
	if len(cfg.GetBatchInput())+len(cfg.GetBatchOutput()) > 0 { // as in Triton, which loads such models
		b.log.Warn("batch_input and batch_output do nothing for Python models, which see each request's own shapes", "model", src.Model)
	}
	for _, t := range sig.Inputs {
		m.inputs = append(m.inputs, newPort(t, sig.MaxBatch > 0))
	}
	for _, t := range sig.Outputs {
		m.outputs = append(m.outputs, newPort(t, sig.MaxBatch > 0))
	}
	return m, ctx.Err()
}

// Start implements backend.Model.
func (m *loaded) Start(ctx context.Context, p backend.Placement) (backend.Instance, error) {
	limits := worker.DefaultLimits()
	limits.Start, limits.Run = m.set.startTimeout, m.set.runTimeout
	in := &instance{model: m, name: p.Name, seat: m.workers.Join()}
	in.born = m.backend.born
	var err error
	in.sup, err = worker.Supervise(ctx, worker.Config[*link]{
		Model: m.sig.Name, Name: p.Name, Log: m.backend.log, Limits: limits, Changed: in.seat.Set,
		Start: func(ctx context.Context) (*link, error) {
			l, err := m.startWorker(ctx, p)
			if err == nil {
				in.current.Store(l)
			}
			return l, err
		},
	})
	if err != nil {
		in.seat.Leave()
		return nil, forModel(m.sig.Name, err)
	}
	if onGPU(p) {
		in.gpu = &backend.GPUUse{ID: p.GPU, UUID: uuid(p.GPU)}
	}
	return in, nil
}

// StartsInParallel implements backend.StartsInParallel: each instance is a
// process, which spends seconds on importing large packages.
func (m *loaded) StartsInParallel() {}

// startWorker starts a worker and returns when it has loaded the model.
func (m *loaded) startWorker(ctx context.Context, p backend.Placement) (*link, error) {
	first, err := m.firstMessage(p)
	if err != nil {
		return nil, err
	}
	set, err := m.settings()
	if err != nil {
		return nil, err
	}
	cmd, err := m.backend.command(m.src, set, p)
	if err != nil {
		return nil, err
	}
	l, err := startLink(cmd, first, fileName(m.cfg), m, onGPU(p))
	if err != nil {
		return nil, m.backend.startFault(cmd, err)
	}
	payload, err := l.await(ctx, frameReady, m.set.startTimeout)
	if err != nil {
		return nil, err
	}
	var ready struct {
		Maps bool `json:"maps"`
	}
	_ = json.Unmarshal(payload, &ready) // a worker that does not say so gets copies
	l.maps = ready.Maps
	return l, nil
}

// settings returns how a worker is started now: the cache, with the unpacked
// environment, may have been emptied since the model was opened.
func (m *loaded) settings() (settings, error) {
	if m.set.packed == "" || exists(m.set.python) {
		return m.set, nil
	}
	return m.backend.settings(m.src, m.cfg)
}

// An initMessage is the first message to a worker.
type initMessage struct {
	Mode         string          `json:"mode"`              // "serve" or "describe"
	Handler      string          `json:"handler,omitempty"` // the module that runs the model; that of model.py files when empty
	ModelName    string          `json:"model_name"`
	Version      int64           `json:"version"`
	Repository   string          `json:"repository"`  // the model's folder
	VersionDir   string          `json:"version_dir"` // the version's
	ModelFile    string          `json:"model_file"`
	InstanceName string          `json:"instance_name"`
	InstanceKind string          `json:"instance_kind"`
	DeviceID     int             `json:"device_id"`
	Config       json.RawMessage `json:"config"`
	Wire         *wireMessage    `json:"wire,omitempty"`
}

// A wireMessage is what the worker needs to know about the shared memory.
type wireMessage struct {
	Inputs      []string `json:"inputs"`
	Outputs     []string `json:"outputs"`
	OutputTypes []int    `json:"output_types"`
	Batched     bool     `json:"batched"`
	Decoupled   bool     `json:"decoupled"`
	Limit       int      `json:"limit"`            // bytes of a batch's outputs
	Room        int64    `json:"room"`             // bytes of a decoupled model's responses to a request, before the worker asks for more
	Pinned      bool     `json:"pinned,omitempty"` // the worker registers the memory with its GPU
}

func onGPU(p backend.Placement) bool { return p.Kind == modelpb.ModelInstanceGroup_KIND_GPU }

func (b *Backend) newInitMessage(mode string, src backend.Source, cfg *modelpb.ModelConfig) (initMessage, error) {
	msg := initMessage{Mode: mode, Handler: b.handler, ModelName: src.Model, Version: src.Version, Config: model.JSON(cfg)}
	var err error
	if msg.Repository, err = filepath.Abs(src.Root); err != nil {
		return msg, err
	}
	if msg.VersionDir, err = filepath.Abs(src.Dir); err != nil {
		return msg, err
	}
	if isArchive(cfg) {
		msg.Handler = "shoal._archive"
		return msg, nil
	}
	if file := modelFile(msg.VersionDir, cfg); exists(file) {
		msg.ModelFile = file
	}
	return msg, nil
}

// isArchive reports whether the model is that of an archive.
func isArchive(cfg *modelpb.ModelConfig) bool { return cfg.GetParameters()[ParamArchive] != nil }

func modelFile(dir string, cfg *modelpb.ModelConfig) string { return filepath.Join(dir, fileName(cfg)) }

func fileName(cfg *modelpb.ModelConfig) string {
	return cmp.Or(cfg.GetDefaultModelFilename(), "model.py")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (m *loaded) firstMessage(p backend.Placement) ([]byte, error) {
	msg, err := m.backend.newInitMessage("serve", m.src, m.cfg)
	if err != nil {
		return nil, err
	}
	msg.InstanceName, msg.InstanceKind, msg.DeviceID = p.Name, kindName(p.Kind), p.GPU
	if onGPU(p) {
		msg.DeviceID = 0 // the only one that the worker sees
	}
	w := &wireMessage{Inputs: []string{}, Outputs: []string{}, OutputTypes: []int{}, Batched: m.sig.MaxBatch > 0, Decoupled: m.decoupled, Limit: m.set.maxResult, Room: m.backend.options.ResponseQueueSize / 4, Pinned: onGPU(p)}
	for i := range m.inputs {
		w.Inputs = append(w.Inputs, m.inputs[i].Name)
	}
	for i := range m.outputs {
		w.Outputs = append(w.Outputs, m.outputs[i].Name)
		w.OutputTypes = append(w.OutputTypes, int(m.outputs[i].Type))
	}
	msg.Wire = w
	return json.Marshal(msg)
}

// kindName returns Triton's name of a kind.
func kindName(k modelpb.ModelInstanceGroup_Kind) string {
	switch k {
	case modelpb.ModelInstanceGroup_KIND_GPU:
		return "GPU"
	case modelpb.ModelInstanceGroup_KIND_MODEL:
		return "MODEL"
	}
	return "CPU"
}

// Trouble implements backend.Fallible.
func (m *loaded) Trouble() error { return m.workers.Trouble() }

// Close implements backend.Model.
func (m *loaded) Close() error {
	m.calls.Wait()
	if r := m.backend.options.Metrics; r != nil {
		r.Drop(m.owner())
	}
	return nil
}

// forModel adds the model's name to a public error.
func forModel(name string, err error) error {
	return status.Prefix("model '"+name+"': ", err)
}
