package modelstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"shoal/internal/backend/python"
	"shoal/internal/model/modelpb"
)

// A Scaling is how many workers a client wants.
type Scaling struct {
	Name, Version string
	Min, Max      int
	Synchronous   bool
}

// Scale changes the number of a model's workers.
func (s *Store) Scale(ctx context.Context, r Scaling) (Done, error) {
	if r.Max < r.Min {
		return Done{}, errorf(400, kindBadRequest, textWorkersBelow)
	}
	v, err := s.Find(r.Name, r.Version)
	if err != nil {
		return Done{}, err
	}
	if r.Min < 0 {
		return Done{}, errorf(500, kindOutOfBounds, "Index %d out of bounds for length 0", r.Min)
	}
	if !r.Synchronous {
		s.scaleLater(v, r.Min, r.Max)
		s.changed()
		return Done{202, textProcessing}, nil
	}
	if err := s.resize(ctx, v, r.Min, r.Max); err != nil {
		return Done{}, s.errStart(r.Name, r.Version, err)
	}
	s.changed()
	if s.opt.Dialect == MMS {
		return Done{200, "Workers scaled"}, nil
	}
	text := fmt.Sprintf("Workers scaled to %d for model: %s", r.Min, r.Name)
	if r.Version != "" {
		text += ", version: " + r.Version
	}
	return Done{200, text}, nil
}

// pauses are how long a start that failed is followed by the next, in seconds.
var pauses = []int{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597}

// giveUp is how long TorchServe tries to start workers.
const giveUp = 300 * time.Second

// scaleLater changes the workers after the client has its answer. It tries again
// until it succeeds, or something else is wanted.
func (s *Store) scaleLater(v *Version, low, high int) {
	v.want(s, low, high)
	s.work.Go(func() {
		begin := time.Now()
		for try := 0; ; try++ {
			err := s.resize(s.base, v, low, high)
			if err == nil || s.base.Err() != nil {
				return
			}
			pause := time.Duration(pauses[min(try, len(pauses)-1)]) * time.Second
			s.opt.Log.Error("workers not started", "model", v.name, "model_version", v.version, "err", err, "retry", pause)
			if s.opt.Dialect == TorchServe && time.Since(begin)+pause > giveUp {
				return
			}
			select {
			case <-time.After(pause):
			case <-s.base.Done():
				return
			}
			if !v.stillWants(low, high) {
				return
			}
		}
	})
}

// want records how many workers are wanted and returns how many there should be.
func (v *Version) want(s *Store, low, high int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.min, v.max, v.failed = low, high, false
	n := min(max(len(v.workers), low), high)
	if low == 0 {
		n = 0
	}
	for len(v.workers) < n {
		v.workers = append(v.workers, s.newWorker())
	}
	v.workers = v.workers[:n] // the newest end
	v.ready.Store(n > 0)
	if v.change == nil {
		v.change = make(chan struct{})
	}
	return n
}

func (v *Version) stillWants(low, high int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.min == low && v.max == high && !v.removed
}

// newWorker returns a worker with the next number.
func (s *Store) newWorker() worker {
	w := worker{id: strconv.FormatInt(s.ports.Add(1)-1, 10), start: time.Now()}
	if s.opt.Dialect == MMS {
		var b [4]byte
		_, _ = rand.Read(b[:]) // does not fail
		w.id += "-" + hex.EncodeToString(b[:])
	}
	return w
}

var errRemoved = errors.New("the model was unregistered")

// resize gives a version that many workers and returns when they are loaded. When
// it fails, the workers that there were go on.
func (s *Store) resize(ctx context.Context, v *Version, low, high int) error {
	v.turn.Lock()
	defer v.turn.Unlock()
	begin := time.Now()
	n := v.want(s, low, high)
	v.mu.Lock()
	removed := v.removed
	v.mu.Unlock()
	if removed {
		v.settle()
		return errRemoved
	}
	var err error
	if n == 0 {
		err = s.opt.Engine.Uninstall(ctx, v.served)
	} else {
		var cfg *modelpb.ModelConfig
		if cfg, err = s.modelConfig(v, n); err == nil {
			err = s.opt.Engine.Install(ctx, v.served, v.folder, cfg)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = err != nil
	if err == nil {
		v.loaded = n > 0
		s.tellLoaded(v, time.Since(begin))
	}
	if v.change != nil {
		close(v.change)
		v.change = nil
	}
	return err
}

// tellLoaded reports the workers that were not there before. The caller has v.mu.
func (s *Store) tellLoaded(v *Version, took time.Duration) {
	for i := range v.workers {
		w := &v.workers[i]
		if w.told {
			continue
		}
		w.told = true
		if s.opt.Loaded != nil {
			port, _, _ := strings.Cut(w.id, "-")
			name := "W-" + port + "-" + v.name
			if s.opt.Dialect == TorchServe {
				name += "_" + v.version
			}
			s.opt.Loaded(name, took)
		}
	}
}

// settle wakes whoever waits for workers.
func (v *Version) settle() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.change != nil {
		close(v.change)
		v.change = nil
	}
}

// await waits until workers that are being started are there. It reports whether
// it is worth asking for them again.
func (v *Version) await(ctx context.Context) bool {
	v.mu.Lock()
	change := v.change
	if change == nil || v.waiting >= v.queueSize {
		v.mu.Unlock()
		return false
	}
	v.waiting++
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.waiting--
		v.mu.Unlock()
	}()
	select {
	case <-change:
		return true
	case <-ctx.Done():
		return false
	}
}

// modelConfig returns the engine's configuration of a version with n workers.
func (s *Store) modelConfig(v *Version, n int) (*modelpb.ModelConfig, error) {
	o := &s.opt
	var archive string // as tracebacks name the files that were unpacked from it
	if v.own {
		archive = path.Base(v.url)
	}
	told, err := json.Marshal(map[string]any{
		"dialect": o.Dialect.String(), "model_name": v.name, "model_dir": v.dir, "handler": v.handler, "batch_size": v.batchSize,
		"server_version": o.Dialect.ServerVersion(), "decode": !o.RawInput, "max_response_size": o.MaxResponseSize,
		"limit_max_image_pixels": !o.AnyImageSize, "envelope": v.envelope(o.Envelope), "model_config": v.config, "metrics": o.Metrics,
		"archive": archive,
	})
	if err != nil {
		return nil, err
	}
	text := func(s string) *modelpb.ModelParameter { return &modelpb.ModelParameter{StringValue: s} }
	cfg := &modelpb.ModelConfig{
		Name: v.served, Backend: "python", MaxBatchSize: int32(min(max(v.batchSize, 1), math.MaxInt32)),
		Input:         []*modelpb.ModelInput{{Name: Input, DataType: modelpb.DataType_TYPE_STRING, Dims: []int64{1}}},
		Output:        []*modelpb.ModelOutput{{Name: Input, DataType: modelpb.DataType_TYPE_STRING, Dims: []int64{1}}},
		InstanceGroup: placement(n, o.GPUs),
		Parameters:    map[string]*modelpb.ModelParameter{python.ParamArchive: text(string(told))},
		SchedulingChoice: &modelpb.ModelConfig_DynamicBatching{DynamicBatching: &modelpb.ModelDynamicBatching{
			MaxQueueDelayMicroseconds: uint64(1000 * max(v.delay(), 0)),
			DefaultQueuePolicy: &modelpb.ModelQueuePolicy{
				MaxQueueSize:               uint32(max(v.queueSize, 0)),
				DefaultTimeoutMicroseconds: uint64(1000 * max(v.configured("clientTimeoutInMills", 0), 0)),
			},
		}},
	}
	if v.timeouts.response > 0 {
		cfg.Parameters["SHOAL_EXECUTION_TIMEOUT_SECONDS"] = text(seconds(v.timeouts.response))
	}
	if start := v.startTimeout(o.Dialect); start > 0 {
		cfg.Parameters["SHOAL_START_TIMEOUT_SECONDS"] = text(seconds(start))
	}
	if v.streams {
		cfg.ModelTransactionPolicy = &modelpb.ModelTransactionPolicy{Decoupled: true}
	}
	return cfg, nil
}

// Input is the name of the model's input in the engine, and of its output.
const Input = "data"

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// delay is how long a batch waits for company, in ms. A batch of one waits for
// nobody.
func (v *Version) delay() int {
	if v.batchSize <= 1 {
		return 0
	}
	return v.batchDelay
}

// startTimeout is how long a worker may take to load the model. Multi Model Server
// has one limit for everything.
func (v *Version) startTimeout(d Dialect) time.Duration {
	if d == MMS {
		return v.timeouts.response
	}
	return v.timeouts.startup
}

func (v *Version) envelope(server string) string {
	if e := v.manifest.Model.Envelope; e != "" {
		return e
	}
	return server
}

// placement returns the groups of n instances: on the GPUs in turn, or on the CPU.
func placement(n, gpus int) []*modelpb.ModelInstanceGroup {
	if gpus == 0 {
		return []*modelpb.ModelInstanceGroup{{Count: int32(n), Kind: modelpb.ModelInstanceGroup_KIND_CPU}}
	}
	var groups []*modelpb.ModelInstanceGroup
	for g := range min(gpus, n) {
		count := n / gpus
		if g < n%gpus {
			count++
		}
		groups = append(groups, &modelpb.ModelInstanceGroup{Count: int32(count), Kind: modelpb.ModelInstanceGroup_KIND_GPU, Gpus: []int32{int32(g)}})
	}
	return groups
}

// Unregister removes a model, or a version of it. Requests in flight are served.
func (s *Store) Unregister(ctx context.Context, name, version string) (Done, error) {
	v, err := s.remove(name, version)
	if err != nil {
		return Done{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.UnregisterTimeout)
	defer cancel()
	v.turn.Lock()
	defer v.turn.Unlock()
	if err := s.opt.Engine.Uninstall(ctx, v.served); err != nil {
		s.putBack(v)
		if ctx.Err() == context.DeadlineExceeded {
			return Done{}, errorf(408, kindTimeout, "Timed out while cleaning resources: %s", name)
		}
		return Done{}, errorf(500, kindInternal, "Interrupted while cleaning resources: %s", name).because(err)
	}
	s.end(v)
	s.changed()
	s.opt.Log.Info("model unregistered", "model", v.name, "model_version", v.version)
	return Done{200, fmt.Sprintf("Model %q unregistered", rawString(name))}, nil
}

// end marks a version as removed and removes its files.
func (s *Store) end(v *Version) {
	v.ready.Store(false)
	v.mu.Lock()
	v.removed, v.loaded, v.workers = true, false, nil
	v.mu.Unlock()
	v.settle()
	s.discard(v)
}
