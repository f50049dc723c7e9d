package engine

import (
	"math"
	"sync"
	"sync/atomic"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// A Lease is the right to use a version until Release, which must be called
// exactly once. The version stays loaded until its last lease has ended, also
// when it was replaced.
//
// A protocol passes its lease to the request with Hold, and the request's
// Release ends it: the outputs are in memory of the version's instances.
type Lease struct{ *Version }

// Release ends the lease.
func (l Lease) Release() { l.leases.end() }

// Acquire returns a lease on a ready version; infer.LatestVersion is the
// highest one. It takes no lock and does not allocate.
func (e *Engine) Acquire(name string, version int64) (Lease, error) {
	for {
		v, err := e.find(name, version)
		if err != nil {
			return Lease{}, err
		}
		if v.leases.begin() {
			return Lease{v}, nil
		}
		// The version was replaced or unloaded after find. That was published
		// before it stopped giving leases, so find sees it now.
	}
}

// acquireCallee is Acquire for a request of a model. Such requests are served
// even while the engine stops, and by a version that drains: it gives leases
// until the models that call it are freed.
func (e *Engine) acquireCallee(name string, version int64) (Lease, error) {
	lease, err := e.Acquire(name, version)
	if err == nil {
		return lease, nil
	}
	if m, unknown := e.model(name); unknown == nil {
		if v := m.entry.Load().loadedVersion(version); v != nil && v.leases.begin() {
			return Lease{v}, nil
		}
	}
	return Lease{}, err
}

// find returns a ready version. It may be freed at any time.
func (e *Engine) find(name string, version int64) (*Version, error) {
	if !e.loaded.Load() {
		return nil, errStarting
	}
	if e.stopped.Load() {
		return nil, errExiting
	}
	m, err := e.model(name)
	if err != nil {
		return nil, err
	}
	v, err := m.entry.Load().version(version)
	if err != nil && e.stopping.Load() {
		return nil, errExiting // that is the reason
	}
	return v, err
}

// model returns the model that a client, or another model, means.
func (e *Engine) model(name string) (*managed, error) {
	models := *e.models.Load()
	m := models[name]
	if !e.repos.Namespaces {
		if m == nil {
			return nil, status.Rejectf(reject.UnknownModel, status.NotFound, "Request for unknown model: '%s' is not found", name)
		}
		return m, nil
	}
	known, wanted := 0, 0
	for _, id := range e.repos.Named(name) {
		if candidate := models[id]; candidate != nil {
			known++
			if candidate.wish.Load() != nil || candidate.installed.Load() {
				m = candidate
				wanted++
			}
		}
	}
	switch {
	case known == 0 && m != nil: // the name is an ID
		return m, nil
	case wanted == 1:
		return m, nil
	case wanted > 1:
		return nil, status.Rejectf(reject.UnknownModel, status.InvalidArgument, "There are %d identifiers of model '%s' in global map, model namespace must be provided to resolve ambiguity.", wanted, name)
	case known > 0:
		return nil, status.Rejectf(reject.NotReady, status.NotFound, "Identifier of model '%s' is not found in global map", name)
	}
	return nil, status.Rejectf(reject.UnknownModel, status.InvalidArgument, "Request for unknown model: '%s' is not found", name)
}

// leases counts the leases on a version.
type leases struct {
	n     atomic.Int64 // the number of leases; plus closedLeases once closed
	once  sync.Once
	ended chan struct{} // closed when they are closed and the last has ended
}

// closedLeases is far below any count, so that the sign of one word says
// whether more leases are given.
const closedLeases = math.MinInt64 / 2

// begin takes a lease. It returns false when no more are given.
func (l *leases) begin() bool {
	if l.n.Add(1) > 0 {
		return true
	}
	l.end()
	return false
}

func (l *leases) end() {
	switch n := l.n.Add(-1); {
	case n == closedLeases:
		l.once.Do(func() { close(l.ended) })
	case n < closedLeases, n == -1:
		panic("BUG: engine: a lease was released twice")
	}
}

// close gives no more leases.
func (l *leases) close() {
	for {
		n := l.n.Load()
		if n < 0 {
			return
		}
		if l.n.CompareAndSwap(n, n+closedLeases) {
			if n == 0 {
				l.once.Do(func() { close(l.ended) })
			}
			return
		}
	}
}

func (l *leases) init() { l.ended = make(chan struct{}) }

// count returns how many leases there are.
func (l *leases) count() int64 {
	n := l.n.Load()
	if n < 0 {
		n -= closedLeases
	}
	return n
}
