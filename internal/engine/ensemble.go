package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"shoal/internal/backend"
	"shoal/internal/ensemble"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// checkEnsemble completes and checks what can be known of an ensemble without
// its models.
func checkEnsemble(cfg *modelpb.ModelConfig) (*modelpb.ModelConfig, error) {
	cfg = proto.Clone(cfg).(*modelpb.ModelConfig)
	if cfg.ModelTransactionPolicy == nil { // the steps decide
		cfg.ModelTransactionPolicy = &modelpb.ModelTransactionPolicy{}
	}
	model.Normalize(cfg, model.NormalizeOptions{})
	return cfg, model.Validate(cfg, model.NormalizeOptions{})
}

// openEnsemble loads versions of an ensemble, whose models are loaded or have
// failed.
func (e *Engine) openEnsemble(w *wanted, versions []int64) outcome {
	begin := time.Now()
	cfg, err := checkEnsemble(w.cfg)
	var graph *model.Ensemble
	var sig *model.Signature
	var counted *layouts
	if err == nil {
		graph, err = e.connect(w, cfg)
	}
	if err == nil {
		cfg.ModelTransactionPolicy.Decoupled = graph.Answers != 0
		err = model.Validate(cfg, model.NormalizeOptions{}) // what does not go with decoupled
	}
	if err == nil {
		sig = model.NewSignature(cfg)
		counted, err = e.measures(cfg)
	}
	if err == nil {
		err = readLabels(w.src, cfg, sig)
	}
	if err != nil {
		e.log.Error("model not loaded", "model", w.src.ID(), "err", err)
		return outcome{err: err}
	}
	e.inheritLabels(graph, sig)
	got := outcome{opened: make(map[int64]*Version)}
	for _, n := range versions {
		v := &Version{id: w.src.ID(), namespace: w.src.Namespace, number: n, config: cfg, sig: sig, model: made{}, ensemble: graph, stats: new(stats), arrived: e.opt.Arrived, calls: w.model.Calls, freed: make(chan struct{})}
		v.leases.init()
		v.decoupled, v.queueSize = graph.Answers != 0, cmp.Or(e.opt.ResponseQueueSize, DefaultResponseQueueSize)
		v.stats.init(counted, e.opt.ComputeTimes, v.decoupled)
		v.stats.ensemble = true
		e.useCache(v)
		v.sched = ensemble.New(graph, sig, host{e}, v.stats)
		v.store = w.store.use()
		v.loaded = time.Now()
		v.loadDuration = v.loaded.Sub(begin)
		got.opened[n] = v
		e.log.Info("model ready", "version", n, "model", w.src.ID(), "steps", len(graph.Steps), "after", time.Since(begin).Round(time.Millisecond))
	}
	return got
}

// made is the backend's model behind an ensemble: there is none.
type made struct{}

func (made) Start(context.Context, backend.Placement) (backend.Instance, error) {
	panic("BUG: engine: an ensemble has no instances")
}

func (made) Close() error { return nil }

// connect compares an ensemble with the models of its steps. It gives the steps
// their namespaces.
func (e *Engine) connect(w *wanted, cfg *modelpb.ModelConfig) (*model.Ensemble, error) {
	steps := cfg.GetEnsembleScheduling().GetStep()
	ids := make(map[string]string) // of the models, by their names in the steps
	for i, name := range e.calls(w.cfg) {
		ids[name] = w.model.Calls[i]
	}
	names := slices.Compact(slices.Sorted(slices.Values(w.model.Calls)))
	models := *e.models.Load()
	var missing, faults []string
	for _, name := range names {
		m := models[name]
		if m == nil || m.wish.Load() == nil || m.entry.Load().ambiguous || m.entry.Load().unread() {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, status.Errorf(status.InvalidArgument, "ensemble %s contains models that are not available or ambiguous: %s", cfg.GetName(), strings.Join(missing, ", "))
	}
	if err := e.circle(w, cfg); err != nil {
		return nil, err
	}
	for _, name := range names {
		part := models[name].entry.Load()
		prefix := fmt.Sprintf("ensemble '%s' depends on '%s' ", cfg.GetName(), name)
		if part.latest == nil {
			faults = append(faults, prefix+part.absence(models[name].wish.Load()))
			continue
		}
		for _, n := range requiredVersions(steps, e.repos.Name(name)) {
			if part.versions[n].state != StateReady {
				faults = append(faults, prefix+fmt.Sprintf("whose required version %d is not loaded.", n))
			}
		}
	}
	if len(faults) > 0 {
		return nil, status.Errorf(status.InvalidArgument, "%s", strings.Join(faults, "; "))
	}
	graph, err := model.NewEnsemble(cfg, func(name string, version int64) *modelpb.ModelConfig {
		v, err := models[ids[name]].entry.Load().version(version)
		if err != nil {
			panic("BUG: engine: " + err.Error()) // whoever loads an ensemble has the turns of its models
		}
		return v.config
	})
	if err != nil {
		return nil, err
	}
	for i := range graph.Steps {
		graph.Steps[i].Model = ids[graph.Steps[i].Model]
	}
	for _, step := range steps {
		step.ModelNamespace = e.repos.Namespace(ids[step.GetModelName()])
	}
	return graph, nil
}

// absence describes, for an ensemble, why nothing of a model is loaded.
func (m *entry) absence(w *wish) string {
	err := m.failure()
	if err == nil {
		return "which has no loaded version."
	}
	if w.want != nil && w.want.ensemble() {
		return fmt.Sprintf("which is not valid. Model '%s' failed with error: %s", m.name, status.Public(err))
	}
	text := status.Public(err)
	if m.err == nil {
		var clauses strings.Builder
		for _, n := range m.numbers() {
			if s := m.versions[n]; s.state == StateUnavailable {
				fmt.Fprintf(&clauses, "version %d is at %s state: %s;", n, StateUnavailable, reason(s.err))
			}
		}
		text = clauses.String()
	}
	return fmt.Sprintf("which has no loaded version. Model '%s' loading failed with error: %s", m.name, text)
}

// requiredVersions returns the versions of a model that steps name.
func requiredVersions(steps []*modelpb.ModelEnsembling_Step, name string) (list []int64) {
	for _, step := range steps {
		if step.GetModelName() == name && step.GetModelVersion() != -1 && !slices.Contains(list, step.GetModelVersion()) {
			list = append(list, step.GetModelVersion())
		}
	}
	return list
}

// circle returns an error when an ensemble calls itself, possibly through
// others.
func (e *Engine) circle(w *wanted, cfg *modelpb.ModelConfig) error {
	models := *e.models.Load()
	seen := make(map[string]bool)
	var last string // the model that calls the ensemble
	var visit func(from string, calls []string) bool
	visit = func(from string, calls []string) bool {
		for _, name := range calls {
			if name == w.src.ID() {
				last = from
				return true
			}
			if m := models[name]; m != nil && !seen[name] {
				seen[name] = true
				if visit(name, m.wish.Load().calls()) {
					return true
				}
			}
		}
		return false
	}
	if !visit(cfg.GetName(), w.model.Calls) {
		return nil
	}
	return status.Errorf(status.InvalidArgument, "circular dependency between ensembles: %s -> ... -> %s -> %s", cfg.GetName(), last, cfg.GetName())
}

// inheritLabels gives outputs without labels those of the step's output that
// they come from.
func (e *Engine) inheritLabels(graph *model.Ensemble, sig *model.Signature) {
	models := *e.models.Load()
	for i, out := range graph.Outputs {
		if sig.Outputs[i].Labels != nil {
			continue
		}
		for _, step := range graph.Steps {
			for _, link := range step.Outputs {
				if link.Tensor != out.Tensor {
					continue
				}
				if v, err := models[step.Model].entry.Load().version(step.Version); err == nil {
					sig.Outputs[i].Labels = v.sig.Outputs[v.sig.Output(link.Name)].Labels
				}
			}
		}
	}
}

// A wish is that a model is served. It does not change.
type wish struct {
	explicit bool    // a client, or the start, has named the model itself
	want     *wanted // how; nil when it could not be read
}

// calls returns the models that the model sends requests to.
func (w *wish) calls() []string {
	if w == nil || w.want == nil {
		return nil
	}
	return w.want.model.Calls
}

// ensemble reports whether the model is made of others.
func (w *wanted) ensemble() bool { return model.IsEnsemble(w.cfg) }
