package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A recorder is an instance that notes what it ran and when.
type recorder struct {
	takes time.Duration
	fails error
	log   *runLog
}

type runLog struct {
	start time.Time
	mu    sync.Mutex
	lines []string // "at: ids", such as "5ms: a b"
}

func (l *runLog) add(b *infer.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, r := range b.Requests {
		ids = append(ids, r.ID)
	}
	l.lines = append(l.lines, fmt.Sprintf("%v: %s", time.Since(l.start), strings.Join(ids, " ")))
}

// restart forgets what was logged and counts time from now on.
func (l *runLog) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start, l.lines = time.Now(), nil
}

func (l *runLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (in *recorder) Run(b *infer.Batch) error {
	in.log.add(b)
	time.Sleep(in.takes)
	return in.fails
}

func (in *recorder) Close() error { return nil }

// A computer is a recorder that computes on its thread, as ONNX Runtime does.
type computer struct{ *recorder }

func (computer) ComputesOnThread() {}

// A bench runs a batcher in a bubble.
type testBatcher struct {
	*Batcher
	t     *testing.T
	log   *runLog
	start time.Time
	wg    sync.WaitGroup
	mu    sync.Mutex
	out   map[string]string // by id: when and with which error it was answered
}

func fixedSignature(maxBatch int) *model.Signature {
	return &model.Signature{Name: "m", MaxBatch: maxBatch, Required: 1, Inputs: []model.Tensor{{Name: "I", Type: tensor.FP32, Dims: tensor.Shape{1}}}}
}

func variableSignature(maxBatch int) *model.Signature {
	s := fixedSignature(maxBatch)
	s.Inputs[0].Dims = tensor.Shape{-1}
	return s
}

// maxRows returns the largest batch of a configuration.
func maxRows(cfg BatcherConfig) int { return cfg.Policy.(*Triton).MaxRows }

// startTest returns a batcher whose instances take that long for each batch.
func startTest(t *testing.T, cfg BatcherConfig, takes ...time.Duration) *testBatcher {
	t.Helper()
	if len(cfg.Levels) == 0 {
		cfg.Levels = []QueuePolicy{{}}
	}
	if cfg.Signature == nil {
		cfg.Signature = fixedSignature(maxRows(cfg))
	}
	log := &runLog{start: time.Now()}
	var instances []backend.Instance
	for _, d := range takes {
		instances = append(instances, &recorder{takes: d, log: log})
	}
	b, err := startBatcher(cfg, instances, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return &testBatcher{Batcher: b, t: t, log: log, start: time.Now(), out: make(map[string]string)}
}

// send submits a request and waits until it is queued or runs.
func (b *testBatcher) send(id string, rows int, change ...func(*infer.Request)) {
	b.sendUntil(context.Background(), id, rows, change...)
}

func (b *testBatcher) sendUntil(ctx context.Context, id string, rows int, change ...func(*infer.Request)) {
	r := infer.NewRequest()
	r.ID, r.Rows = id, rows
	r.Inputs = append(r.Inputs, infer.Input{Shape: tensor.Shape{int64(rows), 1}})
	for _, f := range change {
		f(r)
	}
	b.wg.Go(func() {
		err := b.Do(ctx, r)
		b.mu.Lock()
		defer b.mu.Unlock()
		text := "ok"
		if err != nil {
			text = status.Public(err)
		}
		b.out[id] = fmt.Sprintf("%v: %s", time.Since(b.start), text)
	})
	synctest.Wait()
}

// finish waits for every answer and compares what ran, and when. Instances that
// begin in the same instant note it in any order.
func (b *testBatcher) finish(want ...string) {
	b.t.Helper()
	b.wg.Wait()
	b.Close()
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(b.log.all()))); diff != "" {
		b.t.Errorf("executions (-want +got):\n%s", diff)
	}
}

// answered compares when and how requests were answered.
func (b *testBatcher) answered(want map[string]string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range want {
		if got := b.out[id]; got != w {
			b.t.Errorf("request %s: got answer %q, want %q", id, got, w)
		}
	}
}

func shape(n int64) func(*infer.Request) {
	return func(r *infer.Request) { r.Inputs[0].Shape = tensor.Shape{int64(r.Rows), n} }
}

func priority(n uint64) func(*infer.Request) {
	return func(r *infer.Request) { r.Priority = n }
}

func timeout(d time.Duration) func(*infer.Request) {
	return func(r *infer.Request) { r.Timeout = d }
}
