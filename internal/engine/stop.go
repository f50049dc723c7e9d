package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"shoal/internal/backend"
	"shoal/internal/repository"
)

// Drain makes the server neither live nor ready and cancels loading. Clients
// that are already connected still get leases, since their requests may be on
// the way; requests no longer wait for others to join their batch.
func (e *Engine) Drain() {
	e.mu.Lock()
	if !e.stopping.Swap(true) {
		close(e.stop)
	}
	e.mu.Unlock()
	for _, v := range e.alive() {
		v.sched.Hurry()
	}
}

// Stop drains the engine and gives no more leases to clients. Requests that have
// a lease go on.
func (e *Engine) Stop() {
	e.Drain()
	e.stopped.Store(true)
}

// alive returns the versions that are ready or draining.
func (e *Engine) alive() []*Version {
	var list []*Version
	for _, m := range e.sorted() {
		list = append(list, m.ready()...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return append(list, e.retired...)
}

// Close stops the engine, waits for the leases to end and frees the models,
// callers before the models that they call. When ctx ends first, it leaves
// behind what is still running, since native code cannot be stopped, and
// returns an error that names the models.
func (e *Engine) Close(ctx context.Context) error {
	e.Stop()
	names := slices.Sorted(maps.Keys(*e.models.Load()))
	for _, a := range repository.Plan(nil, e.actual(names...)) {
		e.unload(a.Model, a.Versions)
	}
	ended := make(chan struct{})
	go func() {
		e.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	var busy []string
	for _, v := range e.alive() {
		busy = append(busy, fmt.Sprintf("%s version %d", v.sig.Name, v.number))
	}
	for _, name := range e.Unfinished().Loading {
		busy = append(busy, name+", which is still loading")
	}
	slices.Sort(busy)
	busy = slices.Compact(busy) // a version that was resized may be there twice
	return fmt.Errorf("models that were not freed in time: %s: %w", strings.Join(busy, ", "), ctx.Err())
}

// Abort ends the worker processes of all models, and with them their batches:
// their requests fail, and so do queued ones. What runs in this process goes
// on. Abort does not wait; Close does.
func (e *Engine) Abort() {
	e.Stop()
	for _, v := range e.alive() {
		for _, m := range v.members {
			if a, ok := m.instance.(backend.Abortable); ok {
				a.Abort(errAborted)
			}
		}
	}
}

var errAborted = errors.New("the server is stopping and the time for requests in flight (--exit-timeout-secs) is over")

// Unfinished is the engine's unfinished work.
type Unfinished struct {
	Requests []ModelRequests // the versions that have requests in flight
	Loading  []string        // the models that are being loaded
}

// ModelRequests is how many requests of a version are in flight.
type ModelRequests struct {
	Model    string
	Version  int64
	Requests int64
}

// Unfinished returns the engine's unfinished work.
func (e *Engine) Unfinished() Unfinished {
	var u Unfinished
	for _, v := range e.alive() {
		if n := v.leases.count(); n > 0 {
			u.Requests = append(u.Requests, ModelRequests{v.sig.Name, v.number, n})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	u.Loading = slices.Sorted(maps.Keys(e.loading))
	return u
}
