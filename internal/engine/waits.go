package engine

import (
	"slices"
	"strings"
	"sync"

	"shoal/internal/backend"
	"shoal/internal/status"
)

// A waitGraph has the requests that instances wait for while they run a batch. A
// model may call another one, which may call the first: when every instance of
// the models in such a circle waits for another, none would ever go on.
type waitGraph struct {
	mu sync.Mutex                 // protects the field below
	by map[*backend.Holder][]node // an entry for each request
}

// A node is a version of a model.
type node struct {
	model   string
	version int64
}

// begin records that h waits for an instance of v. It fails when that would be
// without end. Instances returns how many instances a version has.
func (w *waitGraph) begin(h *backend.Holder, v node, instances func(node) int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[*backend.Holder][]node)
	}
	w.by[h] = append(w.by[h], v)
	if chain := w.chain(h, v, instances); chain != nil {
		w.endLocked(h, v)
		return status.Errorf(status.Unavailable, "the call of model '%s' would wait for itself: %s, and every instance of these waits for another; add instances (instance_group), or do not call in a circle",
			v.model, strings.Join(chain, " -> "))
	}
	return nil
}

// end records that h no longer waits for v.
func (w *waitGraph) end(h *backend.Holder, v node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(h, v)
}

func (w *waitGraph) endLocked(h *backend.Holder, v node) {
	targets := w.by[h]
	if len(targets) == 1 {
		delete(w.by, h)
		return
	}
	at := slices.Index(targets, v)
	w.by[h] = slices.Delete(targets, at, at+1)
}

// chain returns the models of a circle in which h would wait for v without end;
// nil when there is none. Such a circle is a set of versions all of whose
// instances wait: for an instance of the set, or for h itself.
func (w *waitGraph) chain(h *backend.Holder, v node, instances func(node) int) []string {
	if !w.waits(v) {
		return nil
	}
	above := make(map[*backend.Holder]bool) // they go on only after h does
	var climb func(*backend.Holder)
	climb = func(h *backend.Holder) {
		if !above[h] {
			above[h] = true
			for _, p := range h.Parents {
				climb(p)
			}
		}
	}
	climb(h)
	stuck := make(map[node]bool)
	for holder := range w.by {
		stuck[node{holder.Model, holder.Version}] = true
	}
	for shrunk := true; shrunk; {
		shrunk = false
		for n := range stuck {
			waiting := 0
			for holder, targets := range w.by {
				if (node{holder.Model, holder.Version}) == n && (above[holder] || reaches(targets, stuck)) {
					waiting++
				}
			}
			if waiting < instances(n) {
				delete(stuck, n)
				shrunk = true
			}
		}
	}
	if !stuck[v] {
		return nil
	}
	return w.path(node{h.Model, h.Version}, v, stuck)
}

// waits reports whether an instance of the version waits.
func (w *waitGraph) waits(v node) bool {
	for holder := range w.by {
		if holder.Version == v.version && holder.Model == v.model {
			return true
		}
	}
	return false
}

func reaches(targets []node, set map[node]bool) bool {
	return slices.ContainsFunc(targets, func(t node) bool { return set[t] })
}

// path follows the waits in the set from one version by way of another, until a
// model occurs again.
func (w *waitGraph) path(from, by node, set map[node]bool) []string {
	chain := []string{from.model}
	seen := map[node]bool{from: true}
	for {
		chain = append(chain, by.model)
		if seen[by] {
			return chain
		}
		seen[by] = true
		next, found := node{}, false
		for holder, targets := range w.by {
			if (node{holder.Model, holder.Version}) != by {
				continue
			}
			for _, t := range targets {
				if set[t] && (!found || t.model < next.model) {
					next, found = t, true
				}
			}
		}
		if !found { // its instances wait for the first
			return append(chain, from.model)
		}
		by = next
	}
}
