package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/respcache"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

const cachedConfig = `
backend: "fake"
max_batch_size: 8
input { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] }
response_cache { enable: true }
`

// startCached starts a model that answers with how often it has run.
func startCached(t *testing.T, run func()) *Engine {
	t.Helper()
	var runs atomic.Int64
	fake := &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		run()
		n := runs.Add(1)
		for _, r := range b.Requests {
			if string(r.Inputs[0].Data.First) == "bad" {
				r.Err = status.Errorf(status.Internal, "run %d", n)
				continue
			}
			out := r.Response.AddOutput()
			out.Name, out.Type, out.Shape, out.Data = "OUT", tensor.Uint8, append(out.Shape, 1, 1), fmt.Appendf(nil, "%d", n)
		}
		return nil
	}}
	dir := repo(t, map[string]string{"m/config.pbtxt": cachedConfig, "m/1/": "", "n/config.pbtxt": cachedConfig, "n/1/": ""})
	e := New(Options{
		Repositories: []string{dir}, LoadThreads: 1, Control: true, Cache: respcache.New(1 << 20),
		Backends: []backend.Backend{fake}, Log: slog.New(slog.DiscardHandler),
	})
	if err := e.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

func askCached(e *Engine, name, content string) (string, error) {
	lease, err := e.Acquire(name, infer.LatestVersion)
	if err != nil {
		return "", err
	}
	r := infer.NewRequest()
	r.Hold(lease)
	defer r.Release()
	r.Inputs = append(r.Inputs, in("IN", tensor.Uint8, tensor.Shape{1, int64(len(content))}, content))
	if err := lease.Infer(context.Background(), r); err != nil {
		return "", err
	}
	return string(r.Response.Outputs[0].Data), nil
}

func TestTheSameRequestIsAnsweredFromTheCache(t *testing.T) {
	e := startCached(t, func() {})
	for i, c := range []struct{ model, content, want string }{
		{"m", "a", "1"},
		{"m", "a", "1"},
		{"m", "b", "2"},
		{"n", "a", "3"}, // another model
		{"m", "a", "1"},
		{"m", "bad", "run 4"}, // errors are not kept
		{"m", "bad", "run 5"},
	} {
		got, err := askCached(e, c.model, c.content)
		if err != nil {
			got = status.Public(err)
		}
		if got != c.want {
			t.Errorf("request %d: got %s, want %s", i, got, c.want)
		}
	}
	stats, err := e.Statistics("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := stats[0]
	if s.CacheHit.Count != 2 || s.CacheMiss.Count != 2 || s.Success.Count != 4 || s.InferenceCount != 2 || s.Queue.Count != 4 || s.Fail.Count != 2 || s.Pending != 0 || !s.Cached {
		t.Errorf("got %d hits, %d misses, %d answered, %d inferences, %d queued, %d failed, %d pending; want 2, 2, 4, 2, 4, 2, 0",
			s.CacheHit.Count, s.CacheMiss.Count, s.Success.Count, s.InferenceCount, s.Queue.Count, s.Fail.Count, s.Pending)
	}
	if err := e.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	if got, err := askCached(e, "m", "a"); got != "6" || err != nil {
		t.Errorf("loaded again: got %s, %v, want it computed", got, err)
	}
}

func TestRequestsAtOneTimeAreComputedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startCached(t, func() { time.Sleep(time.Second) })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := askCached(e, "m", "a"); got != "1" || err != nil {
					t.Errorf("got %s, %v, want the one answer", got, err)
				}
			})
		}
		wg.Wait()
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
