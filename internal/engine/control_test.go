package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// counted is the identity backend that keeps count of what it has open. A version
// whose folder has a file "broken" does not open, and opening waits while the
// test holds it.
type counted struct {
	identity.Backend
	opened, closed atomic.Int64
	started, ended atomic.Int64         // instances
	startFault     atomic.Bool          // no instance starts
	order          chan string          // gets the name of each model that is closed
	gate           atomic.Pointer[gate] // nil: opening does not wait
}

// A gate holds up whoever comes through until it is opened.
type gate struct{ reached, open chan struct{} }

func newGate() *gate { return &gate{reached: make(chan struct{}, 64), open: make(chan struct{})} }

type countedModel struct {
	backend.Model
	of     *counted
	name   string
	broken atomic.Bool // it is closed
}

type countedInstance struct {
	backend.Instance
	model  *countedModel
	broken atomic.Bool // it is closed
}

func (c *counted) Probe(src backend.Source) backend.Probed {
	return backend.Opener(func(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
		return c.open(ctx, src, cfg, sig, host)
	})
}

func (c *counted) open(ctx context.Context, src backend.Source, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
	if g := c.gate.Load(); g != nil {
		g.reached <- struct{}{}
		select {
		case <-g.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if _, err := os.Stat(filepath.Join(src.Dir, "broken")); err == nil {
		return nil, status.Errorf(status.InvalidArgument, "model '%s' is broken", src.Model)
	}
	m, err := c.Backend.Probe(src).Open(ctx, cfg, sig, host)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	return &countedModel{Model: m, of: c, name: src.Model}, nil
}

func (m *countedModel) Start(ctx context.Context, p backend.Placement) (backend.Instance, error) {
	if m.of.startFault.Load() {
		return nil, status.Errorf(status.Internal, "no more instances")
	}
	in, err := m.Model.Start(ctx, p)
	m.of.started.Add(1)
	return &countedInstance{Instance: in, model: m}, err
}

func (in *countedInstance) Close() error {
	in.model.of.ended.Add(1)
	if in.broken.Swap(true) || in.model.broken.Load() {
		panic("closed twice, or after the model")
	}
	return in.Instance.Close()
}

func (m *countedModel) Close() error {
	if m.broken.Swap(true) {
		panic("closed twice")
	}
	m.of.closed.Add(1)
	if m.of.order != nil {
		m.of.order <- m.name
	}
	return m.Model.Close()
}

func (in *countedInstance) Run(b *infer.Batch) error {
	if in.broken.Load() || in.model.broken.Load() {
		return errors.New("the instance is closed")
	}
	return in.Instance.Run(b)
}

// controlled starts an engine over dir that lets models be loaded and unloaded.
func controlled(t *testing.T, dir string) (*Engine, *counted) {
	t.Helper()
	c := &counted{}
	e := New(Options{
		Repositories: []string{dir}, LoadThreads: 2, Control: true,
		Backends: []backend.Backend{c}, Log: slog.New(slog.DiscardHandler),
	})
	if err := e.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if o, c := c.opened.Load(), c.closed.Load(); o != c {
			t.Errorf("got %d versions opened and %d freed, want the same", o, c)
		}
	})
	return e, c
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// askLatest acquires a version, sends it one row and returns which version answered.
func askLatest(ctx context.Context, e *Engine, name string) (int64, error) {
	lease, err := e.Acquire(name, infer.LatestVersion)
	if err != nil {
		return 0, err
	}
	r := infer.NewRequest()
	r.Hold(lease)
	defer r.Release()
	r.Inputs = append(r.Inputs, infer.Input{Name: "INPUT0", Type: tensor.FP32, Shape: tensor.Shape{1, 2}, Data: infer.Data{First: zeros[:]}})
	err = lease.Infer(ctx, r)
	return r.Response.Version, err
}

func states(e *Engine) []string {
	var list []string
	for _, l := range e.Index(false) {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", l.Name, l.Version, l.State, l.Reason)))
	}
	return list
}

func wantStates(t *testing.T, e *Engine, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, states(e)); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

// TestRequestsGoOnWhileVersionsAreSwapped has 32 goroutines infer while the model
// is loaded anew again and again.
func TestRequestsGoOnWhileVersionsAreSwapped(t *testing.T) {
	tests := []struct {
		name, config string
		swaps        int
		fromDisk     bool // the whole way of Load, which costs more
	}{
		{"direct", oneInput, 10_000, false},
		{"batched", batchedInput, 500, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := repo(t, map[string]string{"m/config.pbtxt": tt.config, "m/1/": "", "m/labels.txt": ""})
			e, c := controlled(t, dir)
			// Each swap lets the callers send some more, so that they do not
			// leave the swaps without a core.
			sends := make(chan struct{}, 8)
			var answered atomic.Int64
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for range sends {
						if _, err := askLatest(context.Background(), e, "m"); err != nil {
							t.Errorf("a request failed: %v", err)
						}
						answered.Add(1)
					}
				})
			}
			w, err := e.read(repository.Entry{Name: "m", Dir: filepath.Join(dir, "m")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.swaps {
				for len(sends) < cap(sends) {
					sends <- struct{}{}
				}
				if tt.fromDisk {
					touch(t, filepath.Join(dir, "m", "labels.txt"), i)
					err = e.Load(t.Context(), "m", Override{})
				} else {
					w.model.Files = repository.Stamp(i)
					plan := repository.Plan([]repository.Model{w.model}, e.actual("m"))
					err = e.carryOut(t.Context(), plan, map[string]*wanted{"m": w})["m"]
				}
				if err != nil {
					t.Fatalf("swap %d: %v", i, err)
				}
			}
			close(sends)
			wg.Wait()
			e.work.Wait() // for those that drain
			if opened, closed := c.opened.Load(), c.closed.Load(); opened != int64(tt.swaps)+1 || closed != int64(tt.swaps) {
				t.Errorf("got %d versions opened and %d freed, want %d and all but the last", opened, closed, tt.swaps+1)
			}
			t.Logf("%d requests answered during %d swaps", answered.Load(), tt.swaps)
		})
	}
}

// touch gives a file a time of change of its own.
func touch(t *testing.T, path string, i int) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Unix(int64(i), 0)); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedReloadKeepsTheOldServing(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, c := controlled(t, dir)
	before, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	still := func() {
		t.Helper()
		if v, err := e.find("m", 1); v != before || err != nil || !e.Ready() || e.Failed() != nil {
			t.Errorf("got version %p (%v), ready %v, failed %v, want the old one %p, and ready", v, err, e.Ready(), e.Failed(), before)
		}
		if _, err := askLatest(t.Context(), e, "m"); err != nil {
			t.Errorf("a request: %v", err)
		}
	}
	write(t, dir, "m/1/broken", "")
	err = e.Load(t.Context(), "m", Override{})
	want := "load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: model 'm' is broken;\n"
	if status.CodeOf(err) != status.InvalidArgument || status.Public(err) != want {
		t.Errorf("a version that does not open: got %v, want %q", err, want)
	}
	still()
	wantStates(t, e, "m 1 READY Invalid argument: model 'm' is broken")

	for _, tt := range []struct {
		more, want string
		code       status.Code
	}{
		{` input { name: "X" data_type: TYPE_FP32 dims: [ 0 ] }`, "load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: model input 'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m;\n", status.InvalidArgument},
		{` model_metrics { metric_control { metric_identifier { family: "x" } } }`, "failed to load 'm', failed to poll from model repository: metric control must specify 'histogram_options'", status.Internal},
	} {
		write(t, dir, "m/config.pbtxt", oneInput+tt.more)
		err = e.Load(t.Context(), "m", Override{})
		if status.CodeOf(err) != tt.code || status.Public(err) != tt.want {
			t.Errorf("%s: got %v, want %v %q", tt.more, err, tt.code, tt.want)
		}
		still()
	}

	write(t, dir, "m/config.pbtxt", "input {")
	err = e.Load(t.Context(), "m", Override{})
	if want := "failed to load 'm', failed to poll from model repository"; status.CodeOf(err) != status.Internal || !strings.HasPrefix(status.Public(err), want) || !strings.Contains(status.Public(err), "config.pbtxt:1:8") {
		t.Errorf("a syntax error: got %v, want %q and where it is", err, want)
	}
	still()
	if got := states(e); len(got) != 1 || !strings.Contains(got[0], "m 1 READY Invalid argument: ") || !strings.Contains(got[0], "config.pbtxt") {
		t.Errorf("got index %q, want the old one ready and the syntax error", got)
	}

	write(t, dir, "m/config.pbtxt", oneInput)
	if err := os.Remove(filepath.Join(dir, "m", "1", "broken")); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Errorf("as it was before: %v", err)
	}
	still() // nothing has changed, so nothing was loaded
	wantStates(t, e, "m 1 READY")
	if got := c.opened.Load(); got != 1 {
		t.Errorf("got %d versions opened, want the first alone", got)
	}
}

func TestLoadFollowsTheDisk(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, c := controlled(t, dir)
	load := func(opened int64, want ...string) {
		t.Helper()
		before := c.opened.Load()
		if err := e.Load(t.Context(), "m", Override{}); err != nil {
			t.Errorf("load: %v", err)
		}
		e.work.Wait() // for what drains
		wantStates(t, e, want...)
		if got := c.opened.Load() - before; got != opened {
			t.Errorf("got %d versions opened, want %d", got, opened)
		}
	}
	load(0, "m 1 READY")
	write(t, dir, "m/2/model", "")
	load(1, "m 1 UNAVAILABLE unloaded", "m 2 READY")
	write(t, dir, "m/config.pbtxt", oneInput+"version_policy { all { } }")
	load(1, "m 1 READY", "m 2 READY")
	write(t, dir, "m/config.pbtxt", oneInput+"version_policy { all { } } instance_group { count: 3 kind: KIND_CPU }")
	load(0, "m 1 READY", "m 2 READY") // only instances are started
	if v, err := e.find("m", 2); err != nil || v.active() != 3 {
		t.Errorf("got %v, %v, want three instances", v, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "m", "2")); err != nil {
		t.Fatal(err)
	}
	load(0, "m 1 READY", "m 2 UNAVAILABLE unloaded")
	if !e.Ready() {
		t.Error("got not ready, want ready: what is unloaded on purpose does not count")
	}
	write(t, dir, "m/3/broken", "")
	if err := e.Load(t.Context(), "m", Override{}); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("a further version that is broken: got %v, want it said", err)
	}
	wantStates(t, e, "m 1 READY", "m 2 UNAVAILABLE unloaded", "m 3 UNAVAILABLE Invalid argument: model 'm' is broken")
	if e.Ready() || e.Failed() == nil {
		t.Error("got ready, want strict readiness to see the version that failed")
	}
}

func TestLoadAndUnloadWhatIsNotThere(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, _ := controlled(t, dir)
	for name, want := range map[string]string{
		"nosuch": "failed to load 'nosuch', failed to poll from model repository",
		"":       "Model name cannot be empty. Please enter a valid name to deploy.",
		"../m":   "invalid model name '../m', model name must not contain path traversal characters",
	} {
		if err := e.Load(t.Context(), name, Override{}); status.Public(err) != want {
			t.Errorf("load %q: got %v, want %q", name, err, want)
		}
		if err := e.Unload(t.Context(), name, true); err != nil {
			t.Errorf("unload %q: got %v, want success", name, err)
		}
	}
	wantStates(t, e, "m 1 READY")
	if !e.Ready() {
		t.Error("got not ready, want no trace of what failed")
	}
}

func TestControlIsRefusedUnlessItIsAllowed(t *testing.T) {
	e := standard(t)
	const want = "explicit model load / unload is not allowed if polling is enabled"
	for _, err := range []error{e.Load(t.Context(), "two", Override{}), e.Unload(t.Context(), "two", false)} {
		if status.CodeOf(err) != status.Unavailable || status.Public(err) != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestUnloadServesWhoHasALease(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, c := controlled(t, dir)
	lease, err := e.Acquire("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	r.Hold(lease)
	if err := e.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	wantStates(t, e, "m 1 UNLOADING")
	for version, code := range map[int64]status.Code{infer.LatestVersion: status.NotFound, 1: status.Unavailable} {
		if _, err := e.Acquire("m", version); status.CodeOf(err) != code {
			t.Errorf("version %d of a model that is unloaded: got %v, want %v", version, err, code)
		}
	}
	if !e.Ready() || e.ModelReady("m", 1) {
		t.Error("want the server ready and the model not")
	}
	if got := e.Unfinished().Requests; len(got) != 1 || got[0] != (ModelRequests{"m", 1, 1}) {
		t.Errorf("got unfinished %v, want the one request", got)
	}
	r.Inputs = append(r.Inputs, in("INPUT0", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	if err := lease.Infer(t.Context(), r); err != nil {
		t.Errorf("a request that was there before: got %v, want its answer", err)
	}
	if c.closed.Load() != 0 {
		t.Error("the version was freed while its answer was in use")
	}
	r.Release()
	e.work.Wait()
	wantStates(t, e, "m 1 UNAVAILABLE unloaded")
	if c.closed.Load() != 1 {
		t.Error("the version was not freed")
	}
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, e, "m 1 READY")
	if _, err := askLatest(t.Context(), e, "m"); err != nil {
		t.Errorf("loaded again: %v", err)
	}
}

func TestAModelLoadsAgainWhileItsOldVersionDrains(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, _ := controlled(t, dir)
	lease, err := e.Acquire("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, e, "m 1 READY")
	lease.Release()
	e.work.Wait()
	wantStates(t, e, "m 1 READY")
	if _, err := askLatest(t.Context(), e, "m"); err != nil {
		t.Error(err)
	}
}

func TestLoadsOfOneModelWaitForEachOther(t *testing.T) {
	dir := repo(t, map[string]string{"a/config.pbtxt": oneInput, "a/1/": "", "b/config.pbtxt": oneInput, "b/1/": ""})
	synctest.Test(t, func(t *testing.T) {
		e, c := controlled(t, dir)
		for _, name := range []string{"a", "b"} {
			if err := e.Unload(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}
		g := newGate()
		c.gate.Store(g)
		before := c.opened.Load()
		answers := make(chan error, 4)
		for range 3 {
			go func() { answers <- e.Load(t.Context(), "a", Override{}) }()
		}
		impatient, cancel := context.WithCancel(t.Context())
		defer cancel()
		synctest.Wait()
		wantStates(t, e, "a 1 LOADING", "b 1 UNAVAILABLE unloaded")
		if e.Ready() || !slices.Equal(e.Unfinished().Loading, []string{"a"}) {
			t.Errorf("got ready %v and loading %v, want a alone and not ready", e.Ready(), e.Unfinished().Loading)
		}
		gone := make(chan error, 1)
		go func() { gone <- e.Load(impatient, "a", Override{}) }()
		synctest.Wait()
		cancel()
		if err := <-gone; status.CodeOf(err) != status.Cancelled {
			t.Errorf("one that gives up waiting: got %v, want it cancelled", err)
		}
		go func() { answers <- e.Load(t.Context(), "b", Override{}) }()
		synctest.Wait()
		if got := len(g.reached); got != 2 {
			t.Errorf("got %d models that are being opened, want one a and b beside it", got)
		}
		close(g.open)
		for range 4 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if got := c.opened.Load() - before; got != 2 {
			t.Errorf("got %d versions opened, want one of each: the later loads find nothing to do", got)
		}
		wantStates(t, e, "a 1 READY", "b 1 READY")
	})
}

func TestNoMoreModelsLoadAtOnceThanThereAreThreads(t *testing.T) {
	files := map[string]string{}
	for i := range 6 {
		files[fmt.Sprintf("m%d/config.pbtxt", i)], files[fmt.Sprintf("m%d/1/", i)] = oneInput, ""
	}
	dir := repo(t, files)
	synctest.Test(t, func(t *testing.T) {
		c, g := &counted{}, newGate()
		c.gate.Store(g)
		e := New(Options{Repositories: []string{dir}, LoadThreads: 2, Backends: []backend.Backend{c}, Log: slog.New(slog.DiscardHandler)})
		loaded := make(chan error, 1)
		go func() { loaded <- e.LoadAll(t.Context()) }()
		synctest.Wait()
		if got := len(g.reached); got != 2 {
			t.Errorf("got %d models loading, want 2", got)
		}
		close(g.open)
		if err := <-loaded; err != nil || !e.Ready() {
			t.Errorf("got %v, ready %v", err, e.Ready())
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestStopCallsOffALoad(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": "", "n/config.pbtxt": oneInput, "n/1/": ""})
	synctest.Test(t, func(t *testing.T) {
		e, c := controlled(t, dir)
		if err := e.Unload(t.Context(), "m", false); err != nil {
			t.Fatal(err)
		}
		c.gate.Store(newGate())
		write(t, dir, "n/1/model", "changed")
		answers := make(chan error, 2)
		for _, name := range []string{"m", "n"} {
			go func() { answers <- e.Load(context.Background(), name, Override{}) }()
		}
		synctest.Wait()
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 2 {
			if err := <-answers; !errors.Is(err, errExiting) {
				t.Errorf("got %v, want %v", err, errExiting)
			}
		}
		for _, err := range []error{e.Load(context.Background(), "m", Override{}), e.Unload(context.Background(), "n", false)} {
			if !errors.Is(err, errExiting) {
				t.Errorf("after Close: got %v, want %v", err, errExiting)
			}
		}
	})
}

// callAsModel sends a model the request of another.
func callAsModel(t *testing.T, e *Engine, callee string) error {
	r := infer.NewRequest()
	defer r.Release()
	r.Model, r.Version = callee, infer.LatestVersion
	r.Inputs = append(r.Inputs, in("INPUT0", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	return host{e}.Infer(t.Context(), r)
}

// TestDrainingFollowsCalls has a model outer that calls middle, which calls inner.
func TestDrainingFollowsCalls(t *testing.T) {
	calls := map[string][]string{"outer": {"middle"}, "middle": {"inner"}}
	files := map[string]string{}
	for _, name := range []string{"outer", "middle", "inner", "other"} {
		files[name+"/config.pbtxt"], files[name+"/1/"] = oneInput, ""
	}
	dir := repo(t, files)
	tests := []struct {
		name string
		end  func(e *Engine) error
		want []string // in the order in which they are freed
	}{
		{"unload what is called", func(e *Engine) error { return e.Unload(context.Background(), "middle", false) }, []string{"outer", "middle"}},
		{"unload with dependents", func(e *Engine) error { return e.Unload(context.Background(), "outer", true) }, []string{"outer", "middle", "inner"}},
		{"unload the caller alone", func(e *Engine) error { return e.Unload(context.Background(), "outer", false) }, []string{"outer"}},
		{"close", func(e *Engine) error { e.Stop(); go e.Close(context.Background()); return nil }, []string{"other", "outer", "middle", "inner"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counted{order: make(chan string, 8)}
				e := New(Options{Repositories: []string{dir}, LoadThreads: 2, Control: true, Startup: []string{"outer", "other"}, Backends: []backend.Backend{c}, Log: slog.New(slog.DiscardHandler)})
				e.calls = func(cfg *modelpb.ModelConfig) []string { return calls[cfg.GetName()] }
				if err := e.LoadAll(t.Context()); err != nil {
					t.Fatal(err)
				}
				held, err := e.Acquire("outer", 1)
				if err != nil {
					t.Fatal(err)
				}
				if err := tt.end(e); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for range len(c.order) {
					if got := <-c.order; got != "other" {
						t.Errorf("%s was freed while outer had a request", got)
					} else {
						tt.want = tt.want[1:]
					}
				}
				for _, callee := range []string{"middle", "inner"} { // they must be there for outer's request
					if err := callAsModel(t, e, callee); err != nil {
						t.Errorf("outer's request to %s: %v", callee, err)
					}
				}
				held.Release()
				synctest.Wait()
				for _, want := range tt.want {
					if got := <-c.order; got != want {
						t.Errorf("got %s freed, want %s", got, want)
					}
				}
				if len(c.order) > 0 {
					t.Errorf("%s was freed, too", <-c.order)
				}
				if err := e.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
