package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/sched"
	"shoal/internal/status"
)

// load reads, completes and checks a model's configuration and loads the
// versions that its policy chooses. It never fails as a whole: the entry says
// what became of the model.
func (e *Engine) load(ctx context.Context, src repository.Entry) *entry {
	m := &entry{name: src.Name}
	begin := time.Now()
	if err := ctx.Err(); err != nil {
		m.err = status.Wrap(status.Unavailable, err, "loading was called off: the server is stopping")
		return m
	}
	cfg, chosen, first, err := e.prepare(ctx, src)
	m.versions = make(map[int64]versionSlot, len(chosen))
	if err != nil {
		e.log.Error("model not loaded", "model", src.Name, "err", err)
		for _, n := range chosen {
			m.add(n, nil, err)
		}
		if len(chosen) == 0 {
			m.err = err
		}
		return m
	}
	defer first.Close()
	sig := model.NewSignature(cfg)
	counted, err := e.measures(cfg)
	if err == nil {
		err = readLabels(src, cfg, sig)
	}
	if err != nil {
		e.log.Error("model not loaded", "model", src.Name, "err", err)
		m.err = err
		return m
	}
	for _, n := range chosen {
		probed := first
		if n != chosen[0] {
			probed = e.backends[cfg.GetBackend()].Probe(source(src, n))
			defer probed.Close()
		}
		v, err := e.open(ctx, probed, n, cfg, sig, counted)
		m.add(n, v, err)
		if err != nil {
			e.log.Error("model not loaded", "model", src.Name, "version", n, "err", err)
			continue
		}
		e.log.Info("model ready", "model", src.Name, "version", n, "instances", len(v.instances), "after", time.Since(begin).Round(time.Millisecond))
	}
	return m
}

// prepare returns the model's complete, normalised and valid configuration, the
// versions to load and the first of them as the configuration was completed
// from it, which the caller must close. When the content of the versions is at
// fault, and not the model's configuration, it returns their numbers with the
// error.
func (e *Engine) prepare(ctx context.Context, src repository.Entry) (_ *modelpb.ModelConfig, _ []int64, _ backend.Probed, err error) {
	log := e.log.With("model", src.Name)
	cfg, err := src.Config(e.opt.ConfigName)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := model.Refuse(cfg); err != nil {
		return nil, nil, nil, err
	}
	if fields := model.Ignored(cfg); len(fields) > 0 {
		log.Warn("the configuration sets fields that Shoal does not act on yet", "fields", strings.Join(fields, "; "))
	}
	onDisk, err := src.Versions(func(msg string) { log.Warn(msg) })
	if err != nil {
		return nil, nil, nil, err
	}
	chosen, missing := repository.Select(cfg.GetVersionPolicy(), onDisk)
	for _, n := range missing {
		log.Warn("a version that version_policy names has no folder", "version", n)
	}
	if len(chosen) == 0 {
		return nil, nil, nil, status.Errorf(status.InvalidArgument, "at least one version must be available under the version policy of model '%s'", src.Name)
	}
	dir := src.VersionDir(chosen[0])
	if err := model.InferBackend(cfg, func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }); err != nil {
		return nil, nil, nil, err
	}
	b, err := e.backendFor(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	first := b.Probe(source(src, chosen[0]))
	defer func() {
		if err != nil {
			first.Close()
		}
	}()
	if !e.opt.NoAutoComplete {
		if err := first.Complete(ctx, cfg); err != nil {
			return nil, chosen, nil, err
		}
		if err := model.Refuse(cfg); err != nil { // the model's own code may have set it
			return nil, chosen, nil, err
		}
	}
	var machine model.NormalizeOptions
	if a, ok := b.(backend.Accelerated); ok {
		machine.GPUs = a.GPUs()
	}
	model.Normalize(cfg, machine)
	if err := model.Validate(cfg, machine); err != nil {
		return nil, nil, nil, err
	}
	return cfg, chosen, first, nil
}

// measures returns the cells that the model's metrics are counted in.
func (e *Engine) measures(cfg *modelpb.ModelConfig) (*layouts, error) {
	if err := checkTags(cfg); err != nil {
		return nil, err
	}
	counted, unknown, err := layoutsFor(cfg)
	if len(unknown) > 0 {
		e.log.Warn("model_metrics names metrics without buckets of their own", "model", cfg.GetName(), "families", strings.Join(unknown, ", "))
	}
	return counted, err
}

func (e *Engine) backendFor(cfg *modelpb.ModelConfig) (backend.Backend, error) {
	if b := e.backends[cfg.GetBackend()]; b != nil {
		return b, nil
	}
	name := cfg.GetBackend()
	if name == "" {
		name = cfg.GetPlatform()
	}
	return nil, status.Errorf(status.InvalidArgument, "unable to find backend '%s' for model '%s'; this server has: %s",
		name, cfg.GetName(), strings.Join(slices.Sorted(maps.Keys(e.backends)), ", "))
}

// readLabels fills in the class names that the outputs' label files give.
func readLabels(src repository.Entry, cfg *modelpb.ModelConfig, sig *model.Signature) error {
	for i, out := range cfg.GetOutput() {
		if out.GetLabelFilename() == "" {
			continue
		}
		labels, err := src.Labels(out.GetLabelFilename())
		if err != nil {
			return err
		}
		sig.Outputs[i].Labels = labels
	}
	return nil
}

// open loads one version and starts its instances and scheduler.
func (e *Engine) open(ctx context.Context, probed backend.Probed, n int64, cfg *modelpb.ModelConfig, sig *model.Signature, counted *layouts) (_ *Version, err error) {
	begin := time.Now()
	m, err := probed.Open(ctx, cfg, sig, host{e})
	if err != nil {
		return nil, err
	}
	v := &Version{number: n, config: cfg, sig: sig, model: m, arrived: e.opt.Arrived}
	v.leases.init()
	v.decoupled, v.queueSize = cfg.GetModelTransactionPolicy().GetDecoupled(), cmp.Or(e.opt.ResponseQueueSize, DefaultResponseQueueSize)
	v.stats.init(counted, e.opt.ComputeTimes, v.decoupled)
	defer func() {
		if err == nil {
			return
		}
		for _, t := range v.tickets {
			t.Leave()
		}
		for _, in := range v.instances {
			_ = in.Close() // the load's error says more
		}
		_ = m.Close()
	}()
	for _, p := range placements(cfg) {
		in, err := m.Start(ctx, p)
		if err != nil {
			return nil, err
		}
		v.instances = append(v.instances, in)
		if p.Group.GetPassive() {
			continue
		}
		v.active = append(v.active, in)
		if e.opt.Limiter == nil {
			continue
		}
		ticket, err := e.opt.Limiter.Join(p.Group.GetRateLimiter(), p.GPU)
		if err != nil {
			return nil, err
		}
		v.tickets = append(v.tickets, ticket)
		v.active[len(v.active)-1] = &sched.Limited{Instance: in, Ticket: ticket}
	}
	if len(v.active) == 0 {
		return nil, status.Errorf(status.InvalidArgument, "every instance group of model '%s' is passive, so that nothing would run its requests; take passive from one", sig.Name)
	}
	if v.sched, err = e.startScheduler(cfg, sig, v.active, &v.stats); err != nil {
		return nil, err
	}
	v.loaded = time.Now()
	v.loadDuration = v.loaded.Sub(begin)
	return v, nil
}

// startScheduler returns the scheduler that a configuration asks for.
func (e *Engine) startScheduler(cfg *modelpb.ModelConfig, sig *model.Signature, instances []backend.Instance, record sched.Recorder) (sched.Scheduler, error) {
	if cfg.GetDynamicBatching() == nil {
		return sched.StartDirect(instances, record), nil
	}
	bc := sched.NewBatcherConfig(cfg, sig)
	bc.MinQueued = e.opt.HoldBatches
	return sched.StartBatcher(bc, instances, record)
}

// placements lists the instances that a normalised configuration asks for.
func placements(cfg *modelpb.ModelConfig) []backend.Placement {
	var list []backend.Placement
	for _, g := range cfg.GetInstanceGroup() {
		gpus := []int32{0}
		if g.GetKind() == modelpb.ModelInstanceGroup_KIND_GPU && len(g.GetGpus()) > 0 {
			gpus = g.GetGpus()
		}
		for _, gpu := range gpus {
			for range g.GetCount() {
				list = append(list, backend.Placement{Kind: g.GetKind(), GPU: int(gpu), Group: g})
			}
		}
	}
	perGroup := make(map[*modelpb.ModelInstanceGroup]int)
	for i := range list {
		p := &list[i]
		p.Name = fmt.Sprintf("%s_%d", p.Group.GetName(), perGroup[p.Group])
		p.Count = len(list)
		perGroup[p.Group]++
	}
	return list
}

func source(src repository.Entry, n int64) backend.Source {
	return backend.Source{Model: src.Name, Version: n, Dir: src.VersionDir(n), Root: src.Dir}
}
