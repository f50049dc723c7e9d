package engine

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"shoal/internal/infer"
	"shoal/internal/reject"
	"shoal/internal/repository"
	"shoal/internal/status"
)

// A managed is a model that the engine knows by name. It stays known when the
// model is unloaded.
type managed struct {
	name  string
	turn  chan struct{} // buffered 1: full while a change is in progress
	entry atomic.Pointer[entry]
	wish  atomic.Pointer[wish] // nil when nobody wants the model; changed by whoever has the turn

	installed atomic.Bool // by Install: no repository has it

	// Protected by turn.
	override *override         // what a client has put in place of the repository's; nil when nothing
	refused  *repository.Model // what could not be loaded at the last attempt; nil when everything could
	onDisk   *wanted           // what its folder asked for at the last poll; nil when that could not be read
	stamp    repository.Stamp  // of the folder before that
}

// An entry is the state of a model at one moment. It does not change: a change
// publishes another.
type entry struct {
	name      string
	ambiguous bool
	err       error            // why none of its versions could be tried
	plan      repository.Model // what its versions were loaded from; has no versions itself
	versions  map[int64]slot
	latest    *Version // the highest version that is ready; nil when none is
}

// A slot is a version of a model.
type slot struct {
	state State
	v     *Version         // when it is ready or draining
	stamp repository.Stamp // of the files that v was loaded from
	// err is why the version is unavailable; when it is ready, why it could not
	// be replaced.
	err error
}

// newEntry returns an entry with these slots.
func newEntry(name string, plan repository.Model, slots map[int64]slot) *entry {
	plan.Versions = nil
	m := &entry{name: name, plan: plan, versions: slots}
	for n, s := range slots {
		if s.state == StateReady && (m.latest == nil || n > m.latest.number) {
			m.latest = s.v
		}
	}
	return m
}

// with returns m with some slots replaced.
func (m *entry) with(changes map[int64]slot) *entry {
	slots := maps.Clone(m.versions)
	if slots == nil {
		slots = make(map[int64]slot, len(changes))
	}
	maps.Copy(slots, changes)
	return newEntry(m.name, m.plan, slots)
}

// noted returns m with err as the reason why its ready versions were not
// replaced; nil removes such reasons.
func (m *entry) noted(err error) *entry {
	changes := make(map[int64]slot)
	for n, s := range m.versions {
		if s.state == StateReady {
			s.err = err
			changes[n] = s
		}
	}
	return m.with(changes)
}

// says reports whether the index already has err for the model.
func (m *entry) says(err error) bool {
	if m.err != nil {
		return reason(m.err) == reason(err)
	}
	return slices.ContainsFunc(m.index(), func(line IndexEntry) bool { return line.State == StateReady && line.Reason == reason(err) })
}

// faulty reports whether a version that is ready could not be replaced.
func (m *entry) faulty() bool {
	for _, s := range m.versions {
		if s.state == StateReady && s.err != nil {
			return true
		}
	}
	return false
}

// over reports whether nothing of the model is loaded.
func (m *entry) over() bool {
	for _, s := range m.versions {
		if s.v != nil || s.state == StateLoading {
			return false
		}
	}
	return true
}

// actual returns the model in the form that a plan needs.
func (m *entry) actual() repository.Model {
	plan := m.plan
	plan.Name, plan.Versions = m.name, make(map[int64]repository.Stamp)
	for n, s := range m.versions {
		if s.state == StateReady {
			plan.Versions[n] = s.stamp
		}
	}
	return plan
}

// version returns a ready version, or an error in the texts that clients
// expect.
func (m *entry) version(n int64) (*Version, error) {
	if n == infer.LatestVersion {
		if m.latest == nil {
			return nil, status.Rejectf(reject.NotReady, status.NotFound, "Request for unknown model: '%s' has no available versions", m.name)
		}
		return m.latest, nil
	}
	s, known := m.versions[n]
	switch {
	case !known:
		return nil, status.Rejectf(reject.UnknownModel, status.NotFound, "Request for unknown model: '%s' version %d is not found", m.name, n)
	case s.state != StateReady:
		return nil, status.Rejectf(reject.NotReady, status.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", m.name, n)
	}
	return s.v, nil
}

// loadedVersion returns a version that is ready or draining, nil when there is
// none.
func (m *entry) loadedVersion(n int64) *Version {
	if n != infer.LatestVersion {
		return m.versions[n].v
	}
	for _, n := range slices.Backward(m.numbers()) {
		if v := m.versions[n].v; v != nil {
			return v
		}
	}
	return nil
}

// ready returns the versions that are ready, ascending.
func (m *entry) ready() []*Version {
	var list []*Version
	for _, n := range m.numbers() {
		if s := m.versions[n]; s.state == StateReady {
			list = append(list, s.v)
		}
	}
	return list
}

// numbers returns the numbers of the versions, ascending.
func (m *entry) numbers() []int64 { return slices.Sorted(maps.Keys(m.versions)) }

// failure returns the first reason why not all of the model is loaded. A
// version that was unloaded on purpose is no failure.
func (m *entry) failure() error {
	if m.err != nil {
		return m.err
	}
	for _, n := range m.numbers() {
		if s := m.versions[n]; s.state == StateUnavailable && !errors.Is(s.err, errUnloaded) {
			return s.err
		}
	}
	return nil
}

// unread reports whether the model's folder could not be understood. As in Triton,
// such a model is not yet the server's, when a client has asked for it.
func (m *entry) unread() bool {
	_, ok := errors.AsType[unreadable](m.err)
	return ok
}

// unsettled reports whether a version is still loading, or is loaded and cannot
// serve at the moment.
func (m *entry) unsettled() bool {
	for _, s := range m.versions {
		if s.state == StateLoading || s.state == StateReady && s.v.trouble() != nil {
			return true
		}
	}
	return false
}

// index returns the model's lines of the repository's index.
func (m *entry) index() []IndexEntry {
	if m.err != nil {
		return []IndexEntry{{Name: m.name, Version: NoVersion, State: StateUnavailable, Reason: reason(m.err)}}
	}
	var lines []IndexEntry
	for _, n := range m.numbers() {
		s := m.versions[n]
		if s.state == StateReady {
			if err := s.v.trouble(); err != nil {
				s.state, s.err = StateUnavailable, err
			}
		}
		lines = append(lines, IndexEntry{Name: m.name, Version: n, State: s.state, Reason: reason(s.err)})
	}
	return lines
}

// reason is an error as the index shows it: its kind and its public text.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errAmbiguous), errors.Is(err, errUnloaded):
		return status.Public(err)
	}
	return status.CodeOf(err).String() + ": " + status.Public(err)
}

var (
	errAmbiguous = status.Errorf(status.InvalidArgument, "model appears in two or more repositories")
	errUnloaded  = status.Errorf(status.Unavailable, "unloaded")
)
