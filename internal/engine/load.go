package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"shoal/internal/backend"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/procs"
	"shoal/internal/repository"
	"shoal/internal/sched"
	"shoal/internal/spelling"
	"shoal/internal/status"
)

// A wanted is the desired state of a model: as it is on the disk, or as a
// client wants it.
type wanted struct {
	src   repository.Entry
	store *store               // when src is a folder with a client's files
	cfg   *modelpb.ModelConfig // as it is written
	model repository.Model
	// chosen are the versions that the policy chooses, ascending.
	chosen   []int64
	warnings []string // to log if anything is loaded
}

// An unreadable is why a model's folder could not be read, in the text that
// clients know as a failed poll of the repository.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// read reads which versions of a model should be served, under cfg or, when
// that is nil, under the configuration in its folder. What is loaded may be
// newer than the plan, never older.
func (e *Engine) read(src repository.Entry, cfg *modelpb.ModelConfig) (*wanted, error) {
	advice := cfg == nil // a client knows nothing of the folders here
	if cfg == nil {
		var err error
		if cfg, err = src.Config(e.opt.ConfigName); err != nil {
			return nil, unreadable{err}
		}
	}
	if err := model.Refuse(cfg); err != nil {
		return nil, err
	}
	if model.IsEnsemble(cfg) {
		if _, err := checkEnsemble(cfg); err != nil {
			return nil, unreadable{err} // as in Triton, which checks it when it reads the file
		}
	}
	w := &wanted{src: src, cfg: cfg}
	warn := func(msg string) { w.warnings = append(w.warnings, msg) }
	if fields := model.Ignored(cfg); len(fields) > 0 {
		warn("the configuration sets fields that Shoal does not act on yet: " + strings.Join(fields, "; "))
	}
	onDisk, err := src.Versions(warn)
	if err != nil {
		return nil, unreadable{err}
	}
	chosen, missing := repository.Select(cfg.GetVersionPolicy(), onDisk)
	for _, n := range missing {
		warn(fmt.Sprintf("version_policy names version %d, which has no folder", n))
	}
	if len(chosen) == 0 {
		why := ""
		if advice {
			why = src.WithoutVersion(onDisk)
		}
		return nil, status.Errorf(status.InvalidArgument, "at least one version must be available under the version policy of model '%s'%s", src.Name, why)
	}
	w.chosen = chosen
	w.model, err = src.Model(cfg, chosen, e.callees(src, cfg))
	return w, err
}

// openAll completes and checks the configuration and loads the versions.
func (e *Engine) openAll(ctx context.Context, w *wanted, versions []int64) outcome {
	begin := time.Now()
	if err := ctx.Err(); err != nil {
		return outcome{err: status.Wrap(status.Unavailable, err, "loading was called off")}
	}
	log := e.log.With("model", w.src.ID())
	for _, msg := range w.warnings {
		log.Warn(msg)
	}
	if w.ensemble() {
		return e.openEnsemble(w, versions)
	}
	got := outcome{opened: make(map[int64]*Version), failed: make(map[int64]error)}
	cfg, first, content, err := e.prepare(ctx, w)
	if first != nil {
		defer first.Close()
	}
	var sig *model.Signature
	var counted *layouts
	if err == nil {
		sig = model.NewSignature(cfg)
		if counted, err = e.measures(cfg); err != nil {
			err, content = unreadable{err}, false
		}
	}
	if err == nil {
		err = readLabels(w.src, cfg, sig)
	}
	if err != nil {
		log.Error("model not loaded", "err", e.placed(w.src, err))
		if !content {
			got.err = err
			return got
		}
		for _, n := range versions {
			got.failed[n] = err
		}
		return got
	}
	for _, n := range versions {
		probed := first
		if n != w.chosen[0] {
			probed = e.backends[cfg.GetBackend()].Probe(source(w.src, n))
			defer probed.Close()
		}
		v, err := e.open(ctx, w, probed, n, cfg, sig, counted)
		for try := 0; err != nil && try < e.opt.LoadRetries && ctx.Err() == nil; try++ {
			log.Warn("loading the model again", "version", n, "err", err)
			v, err = e.open(ctx, w, probed, n, cfg, sig, counted)
		}
		if err != nil {
			got.failed[n] = err
			log.Error("model not loaded", "version", n, "err", e.placed(w.src, err))
			continue
		}
		got.opened[n] = v
		log.Info("model ready", "version", n, "instances", v.active(), "after", time.Since(begin).Round(time.Millisecond))
	}
	return got
}

// prepare returns the model's complete, normalised and valid configuration and
// the first version that the policy chooses, from which the configuration was
// completed. The caller must close that version unless it is nil. If prepare
// fails, content says whether Triton would find it when it loads a version: in the
// version's content, or a tensor or an instance group of the configuration.
func (e *Engine) prepare(ctx context.Context, w *wanted) (_ *modelpb.ModelConfig, first backend.Probed, content bool, _ error) {
	cfg := proto.Clone(w.cfg).(*modelpb.ModelConfig)
	dir := w.src.VersionDir(w.chosen[0])
	if err := model.InferBackend(cfg, func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }); err != nil {
		return nil, nil, false, unreadable{status.Errorf(status.CodeOf(err), "%s%s", status.Public(err), source(w.src, w.chosen[0]).Without("model.onnx"))}
	}
	b, err := e.backendFor(cfg)
	if err != nil {
		return nil, nil, true, err // as in Triton, which looks for one when it opens a version
	}
	first = b.Probe(source(w.src, w.chosen[0]))
	if !e.opt.NoAutoComplete {
		if err := first.Complete(ctx, cfg); err != nil {
			return nil, first, true, err
		}
		if err := model.Refuse(cfg); err != nil { // the model's own code may have set it
			return nil, first, true, err
		}
	}
	machine := machineOf(b)
	model.Normalize(cfg, machine)
	err = model.Validate(cfg, machine)
	if invalid, ok := errors.AsType[*model.InvalidError](err); ok && !invalid.Late {
		return nil, first, false, unreadable{err}
	}
	return cfg, first, true, err
}

// measures returns the histogram layouts of the model.
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
	return nil, status.Errorf(status.InvalidArgument, "unable to find backend library for backend '%s' of model '%s'; this server has: %s%s",
		name, cfg.GetName(), strings.Join(slices.Sorted(maps.Keys(e.backends)), ", "), e.otherBackend(cfg, name))
}

// otherBackend says what to do about a backend that there is not, as the end of
// a sentence.
func (e *Engine) otherBackend(cfg *modelpb.ModelConfig, name string) string {
	switch {
	case cfg.GetBackend() == "" && e.backends[name] != nil:
		return fmt.Sprintf("; '%s' is a backend, not a platform: write backend: %q", name, name)
	case slices.Contains([]string{"pytorch", "tensorrt", "openvino", "tensorflow"}, name):
		return "; export the model to ONNX, or load it in a Python model: docs/python.md"
	}
	if near := spelling.Nearest(name, slices.Sorted(maps.Keys(e.backends))); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// readLabels reads the class names from the outputs' label files.
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
func (e *Engine) open(ctx context.Context, w *wanted, probed backend.Probed, n int64, cfg *modelpb.ModelConfig, sig *model.Signature, counted *layouts) (_ *Version, err error) {
	begin := time.Now()
	m, err := probed.Open(ctx, cfg, sig, host{e})
	if err != nil {
		return nil, err
	}
	v := &Version{id: w.src.ID(), namespace: w.src.Namespace, number: n, config: cfg, sig: sig, model: m, stats: new(stats), arrived: e.opt.Arrived, calls: w.model.Calls, freed: make(chan struct{})}
	v.leases.init()
	v.decoupled, v.queueSize = cfg.GetModelTransactionPolicy().GetDecoupled(), cmp.Or(e.opt.ResponseQueueSize, DefaultResponseQueueSize)
	v.stats.init(counted, e.opt.ComputeTimes, v.decoupled)
	v.stats.batching = model.BatchingOf(cfg, e.opt.Batching) != model.BatchingNone
	e.useCache(v)
	defer func() {
		if err == nil {
			return
		}
		_ = closeMembers(v.members) // the load's error is more important
		_ = m.Close()
	}()
	places := placements(cfg)
	if err := checkActive(w.src.Name, places); err != nil {
		return nil, err
	}
	samples, err := warmups(w.src, cfg, sig)
	if err != nil {
		return nil, err
	}
	if v.members, err = e.startMembers(ctx, v, places, samples); err != nil {
		return nil, err
	}
	if v.sched, err = e.startScheduler(cfg, sig, schedulable(v.members), v.stats); err != nil {
		return nil, err
	}
	v.store = w.store.use()
	v.loaded = time.Now()
	v.loadDuration = v.loaded.Sub(begin)
	return v, nil
}

// useCache makes a new version use the cache if its configuration asks for it.
func (e *Engine) useCache(v *Version) {
	if !v.config.GetResponseCache().GetEnable() {
		return
	}
	if v.cached = newCached(e.opt.Cache, v.stats.layouts, e.opt.ComputeTimes); v.cached == nil {
		e.log.Warn("response_cache is enabled, but the server has no cache; add --cache-config=local,size=BYTES", "model", v.sig.Name, "version", v.number)
	}
}

// startScheduler returns the scheduler for a configuration.
func (e *Engine) startScheduler(cfg *modelpb.ModelConfig, sig *model.Signature, instances []backend.Instance, record sched.Recorder) (sched.Scheduler, error) {
	by := model.BatchingOf(cfg, e.opt.Batching)
	if by == model.BatchingNone {
		return sched.StartDirect(instances, record), nil
	}
	bc := sched.NewBatcherConfig(cfg, sig, by)
	bc.MinQueued = e.opt.HoldBatches
	if by == model.BatchingAuto {
		bc.Cores = procs.Native.Cores
	}
	return sched.StartBatcher(bc, instances, record)
}

func source(src repository.Entry, n int64) backend.Source {
	return backend.Source{Model: src.Name, Version: n, Dir: src.VersionDir(n), Root: src.Dir}
}
