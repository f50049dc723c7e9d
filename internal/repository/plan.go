package repository

import (
	"maps"
	"slices"
)

// A Model is a model's state for a plan: as the repository wants it, or as it
// is served.
type Model struct {
	Name      string          // its ID
	Config    string          // digest of the configuration without its instance groups and version policy
	Instances string          // digest of the instance groups
	Files     Stamp           // of the files outside the version folders, such as labels
	Versions  map[int64]Stamp // those that are, or should be, served
	Calls     []string        // the IDs of the models that it sends requests to
}

// A Kind is the kind of an Action.
type Kind int

// The kinds of actions.
const (
	Load           Kind = iota // load a model of which no version is served
	Reload                     // load all versions again and replace what is served
	AddVersions                // load further versions
	Resize                     // change the instances of served versions
	RemoveVersions             // unload some versions
	Unload                     // unload all versions
)

func (k Kind) String() string {
	return [...]string{"load", "reload", "add versions", "resize", "remove versions", "unload"}[k]
}

// An Action is one step from what is served to what is wanted.
type Action struct {
	Kind     Kind
	Model    string
	Versions []int64 // the versions concerned, ascending
	// After names the models whose actions come earlier in the plan and must
	// have ended before this begins. Other models can be changed concurrently.
	After []string
}

// Plan returns the actions that lead from actual to desired. Those of one model
// follow each other and are carried out in turn; when one fails, the rest of
// them is skipped, so that what is served is only removed once there is a
// replacement. A model loads after those that it calls and is unloaded before
// them. It is loaded again when one of them was, and unloaded when one of them
// is no longer there.
//
// Plan is pure, and does not depend on the order of its arguments.
func Plan(desired, actual []Model) []Action {
	want, have := byName(desired), byName(actual)
	var plan []Action
	changed := make(map[string]bool) // the models of which versions come or go
	for _, name := range calleesFirst(want) {
		actions := follow(want, have, name, changed)
		changed[name] = slices.ContainsFunc(actions, func(a Action) bool { return a.Kind != Resize })
		plan = append(plan, actions...)
	}
	gone := maps.Clone(have)
	maps.DeleteFunc(gone, func(name string, m Model) bool { _, wanted := want[name]; return wanted || len(m.Versions) == 0 })
	for _, name := range slices.Backward(calleesFirst(gone)) {
		plan = append(plan, Action{Kind: Unload, Model: name, Versions: versions(gone[name], nil)})
	}
	setAfter(plan, want, have)
	return plan
}

// follow returns the actions that lead from one state of a model to another,
// given those of the models that it calls.
func follow(want, have map[string]Model, name string, changed map[string]bool) []Action {
	m, old := want[name], have[name]
	lost := slices.ContainsFunc(m.Calls, func(callee string) bool {
		_, wanted := want[callee]
		return !wanted && len(have[callee].Versions) > 0
	})
	switch {
	case lost && len(old.Versions) > 0:
		return []Action{{Kind: Unload, Model: name, Versions: versions(old, nil)}}
	case lost:
		return nil
	case len(old.Versions) > 0 && len(m.Versions) > 0 && slices.ContainsFunc(m.Calls, func(callee string) bool { return changed[callee] }):
		return []Action{{Kind: Reload, Model: name, Versions: versions(m, nil)}}
	}
	return change(m, old)
}

// change returns the actions that lead from one state of a model to another.
func change(want, have Model) []Action {
	add, remove, both := versions(want, have.Versions), versions(have, want.Versions), []int64(nil)
	changed := want.Config != have.Config || want.Files != have.Files || !slices.Equal(want.Calls, have.Calls)
	for n, stamp := range want.Versions {
		if old, ok := have.Versions[n]; ok {
			both = append(both, n)
			changed = changed || old != stamp
		}
	}
	slices.Sort(both)
	switch {
	case len(want.Versions) == 0 && len(have.Versions) == 0:
		return nil
	case len(want.Versions) == 0:
		return []Action{{Kind: Unload, Model: want.Name, Versions: remove}}
	case len(have.Versions) == 0:
		return []Action{{Kind: Load, Model: want.Name, Versions: add}}
	case changed:
		return []Action{{Kind: Reload, Model: want.Name, Versions: versions(want, nil)}}
	}
	var list []Action
	if len(add) > 0 {
		list = append(list, Action{Kind: AddVersions, Model: want.Name, Versions: add})
	}
	if len(both) > 0 && want.Instances != have.Instances {
		list = append(list, Action{Kind: Resize, Model: want.Name, Versions: both})
	}
	if len(remove) > 0 {
		list = append(list, Action{Kind: RemoveVersions, Model: want.Name, Versions: remove})
	}
	return list
}

// versions returns the versions of m that are not in except, ascending.
func versions(m Model, except map[int64]Stamp) []int64 {
	var list []int64
	for n := range m.Versions {
		if _, ok := except[n]; !ok {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

func byName(models []Model) map[string]Model {
	out := make(map[string]Model, len(models))
	for _, m := range models {
		out[m.Name] = m
	}
	return out
}

// calleesFirst returns the names so that each comes after those that its model
// calls, and otherwise sorted. Where models call each other in a cycle, one of
// them is first.
func calleesFirst(models map[string]Model) []string {
	order := make([]string, 0, len(models))
	seen := make(map[string]bool, len(models))
	var visit func(name string)
	visit = func(name string) {
		m, ok := models[name]
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		for _, callee := range slices.Sorted(slices.Values(m.Calls)) {
			visit(callee)
		}
		order = append(order, name)
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		visit(name)
	}
	return order
}

// setAfter gives each action the models of earlier ones that it depends on: one
// calls the other, in the old or the new state.
func setAfter(plan []Action, states ...map[string]Model) {
	related := make(map[string][]string)
	for _, models := range states {
		for _, m := range models {
			for _, callee := range m.Calls {
				related[m.Name] = append(related[m.Name], callee)
				related[callee] = append(related[callee], m.Name)
			}
		}
	}
	earlier := make(map[string]bool)
	for i := range plan {
		a := &plan[i]
		for _, other := range related[a.Model] {
			if earlier[other] && other != a.Model && !slices.Contains(a.After, other) {
				a.After = append(a.After, other)
			}
		}
		slices.Sort(a.After)
		earlier[a.Model] = true
	}
}
