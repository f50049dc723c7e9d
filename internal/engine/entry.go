package engine

import (
	"maps"
	"slices"
	"strings"

	"shoal/internal/infer"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// An entry is a model as the engine knows it. It does not change once it is
// known: a change puts another in its place.
type entry struct {
	name      string
	ambiguous bool
	err       error // why none of its versions could even be tried
	versions  map[int64]versionSlot
	latest    *Version // the highest version that is ready; nil when none is
}

// A versionSlot is a version that was tried: v when it is there, else why not.
type versionSlot struct {
	v   *Version
	err error
}

// version returns a ready version, or says in the words that clients expect
// what is amiss.
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
	case s.v == nil:
		return nil, notReady(m.name, n)
	}
	return s.v, nil
}

// add notes what became of a version. It is for the entry's maker only.
func (m *entry) add(n int64, v *Version, err error) {
	m.versions[n] = versionSlot{v: v, err: err}
	if v != nil && (m.latest == nil || n > m.latest.number) {
		m.latest = v
	}
}

// readyVersions returns the numbers of the versions that are ready, ascending.
func (m *entry) readyVersions() []int64 {
	var list []int64
	for n, s := range m.versions {
		if s.v != nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// failure returns the first reason why not all of the model is there.
func (m *entry) failure() error {
	if m.err != nil {
		return m.err
	}
	for _, n := range slices.Sorted(maps.Keys(m.versions)) {
		if err := m.versions[n].err; err != nil {
			return err
		}
	}
	return nil
}

// troubled reports whether a version that was loaded cannot serve at the moment.
func (m *entry) troubled() bool {
	for _, s := range m.versions {
		if s.v != nil && s.v.trouble() != nil {
			return true
		}
	}
	return false
}

// index returns the model's lines of the repository's index.
func (m *entry) index() []IndexEntry {
	if m.err != nil {
		return []IndexEntry{{Name: m.name, Version: NoVersion, State: StateUnavailable, Reason: reason(m.err, m.ambiguous)}}
	}
	var lines []IndexEntry
	for _, n := range slices.Sorted(maps.Keys(m.versions)) {
		line := IndexEntry{Name: m.name, Version: n, State: StateReady}
		slot := m.versions[n]
		err := slot.err
		if slot.v != nil {
			err = slot.v.trouble()
		}
		if err != nil {
			line.State, line.Reason = StateUnavailable, reason(err, false)
		}
		lines = append(lines, line)
	}
	return lines
}

// reason is an error as the index shows it: its kind and its public text.
func reason(err error, bare bool) string {
	if bare {
		return status.Public(err)
	}
	return status.CodeOf(err).String() + ": " + status.Public(err)
}

func compareNames(a, b string) int { return strings.Compare(a, b) }
