package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"shoal/internal/backend"
)

// Stop makes the server neither live nor ready and refuses new requests. Those
// in flight go on; none waits for company any more.
func (e *Engine) Stop() {
	e.stopping.Store(true)
	for _, m := range e.sorted() {
		for _, slot := range m.versions {
			if slot.v != nil {
				slot.v.sched.Drain()
			}
		}
	}
}

// Close stops the engine, waits for the requests in flight and frees the models.
// When ctx ends first, it leaves behind what is still running, since native code
// cannot be stopped, and returns an error that names the models.
func (e *Engine) Close(ctx context.Context) error {
	e.Stop()
	var wg sync.WaitGroup
	var mu sync.Mutex // protects busy
	busy := make(map[string]bool)
	for _, m := range e.sorted() {
		for _, slot := range m.versions {
			if slot.v == nil {
				continue
			}
			name := fmt.Sprintf("%s version %d", m.name, slot.v.number)
			mu.Lock()
			busy[name] = true
			mu.Unlock()
			wg.Go(func() {
				if e.closeVersion(ctx, slot.v) {
					mu.Lock()
					defer mu.Unlock()
					delete(busy, name)
				}
			})
		}
	}
	freed := make(chan struct{})
	go func() {
		wg.Wait()
		close(freed)
	}()
	select {
	case <-freed:
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	if len(busy) > 0 {
		return fmt.Errorf("models that were not freed in time: %s: %w", strings.Join(slices.Sorted(maps.Keys(busy)), ", "), ctx.Err())
	}
	return nil
}

// closeVersion drains a version and frees it. It reports whether it could.
func (e *Engine) closeVersion(ctx context.Context, v *Version) bool {
	begin := time.Now()
	if v.drain(ctx) != nil {
		return false
	}
	log := e.log.With("model", v.sig.Name, "version", v.number)
	if err := v.free(); err != nil {
		log.Warn("freeing the model", "err", err)
	}
	log.Info("unloaded", "after", time.Since(begin).Round(time.Millisecond))
	return true
}

// Abort ends the worker processes of all models, and with them the batches that
// they run: their requests fail, and so do those that are queued. What runs in
// this process goes on. Abort does not wait; Close does.
func (e *Engine) Abort() {
	e.stopping.Store(true)
	for _, m := range e.sorted() {
		for _, slot := range m.versions {
			if slot.v == nil {
				continue
			}
			for _, in := range slot.v.instances {
				if a, ok := in.(backend.Abortable); ok {
					a.Abort(errAborted)
				}
			}
		}
	}
}

var errAborted = errors.New("the server is stopping and the time for requests in flight (--exit-timeout-secs) is over")

// Unfinished is what an engine still does.
type Unfinished struct {
	Requests []ModelRequests // the versions that have requests in flight
	Loading  []string        // the models that are being loaded
}

// ModelRequests says how many requests of a version are in flight.
type ModelRequests struct {
	Model    string
	Version  int64
	Requests int64
}

// Unfinished returns what the engine still does, by name and version.
func (e *Engine) Unfinished() Unfinished {
	var u Unfinished
	for _, m := range e.sorted() {
		for _, n := range m.readyVersions() {
			if r := m.versions[n].v.leases.count(); r > 0 {
				u.Requests = append(u.Requests, ModelRequests{m.name, n, r})
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	u.Loading = slices.Sorted(maps.Keys(e.loading))
	return u
}
