package repository

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// m is a model in a short form: its versions all have the stamp 1.
func m(name string, versions ...int64) Model {
	model := Model{Name: name, Config: "c", Instances: "1", Files: 1, Versions: map[int64]Stamp{}}
	for _, n := range versions {
		model.Versions[n] = 1
	}
	return model
}

func with(model Model, set func(*Model)) Model {
	set(&model)
	return model
}

func calls(model Model, callees ...string) Model {
	model.Calls = callees
	return model
}

func list(models ...Model) []Model { return models }

func TestPlan(t *testing.T) {
	otherConfig := func(m *Model) { m.Config = "d" }
	otherLabels := func(m *Model) { m.Files = 2 }
	twoInstances := func(m *Model) { m.Instances = "2" }
	otherFile := func(m *Model) { m.Versions[1] = 2 }
	tests := []struct {
		name            string
		desired, actual []Model
		want            []Action
	}{
		{"nothing", nil, nil, nil},
		{"nothing changed", list(m("a", 1, 2)), list(m("a", 1, 2)), nil},
		{"a model is new", list(m("a", 2, 1)), nil, []Action{{Kind: Load, Model: "a", Versions: []int64{1, 2}}}},
		{"a model of which nothing is served", list(m("a", 1)), list(m("a")), []Action{{Kind: Load, Model: "a", Versions: []int64{1}}}},
		{"a model is gone", nil, list(m("a", 1, 2)), []Action{{Kind: Unload, Model: "a", Versions: []int64{1, 2}}}},
		{"a model is gone that was not served", nil, list(m("a")), nil},
		{"no version is wanted", list(m("a")), list(m("a", 1)), []Action{{Kind: Unload, Model: "a", Versions: []int64{1}}}},
		{"the configuration changed", list(with(m("a", 1, 2), otherConfig)), list(m("a", 1)), []Action{{Kind: Reload, Model: "a", Versions: []int64{1, 2}}}},
		{"a label file changed", list(with(m("a", 1), otherLabels)), list(m("a", 1)), []Action{{Kind: Reload, Model: "a", Versions: []int64{1}}}},
		{"a file of a version changed", list(with(m("a", 1, 2), otherFile)), list(m("a", 1, 2)), []Action{{Kind: Reload, Model: "a", Versions: []int64{1, 2}}}},
		{"only the instances changed", list(with(m("a", 1, 2), twoInstances)), list(m("a", 1, 2)), []Action{{Kind: Resize, Model: "a", Versions: []int64{1, 2}}}},
		{
			"instances and configuration changed", list(with(with(m("a", 1), twoInstances), otherConfig)), list(m("a", 1)),
			[]Action{{Kind: Reload, Model: "a", Versions: []int64{1}}},
		},
		{"a version is new", list(m("a", 1, 2)), list(m("a", 1)), []Action{{Kind: AddVersions, Model: "a", Versions: []int64{2}}}},
		{"a version is gone", list(m("a", 2)), list(m("a", 1, 2)), []Action{{Kind: RemoveVersions, Model: "a", Versions: []int64{1}}}},
		{
			"the new version is there before the old goes", list(m("a", 2)), list(m("a", 1)),
			[]Action{{Kind: AddVersions, Model: "a", Versions: []int64{2}}, {Kind: RemoveVersions, Model: "a", Versions: []int64{1}}},
		},
		{
			"versions and instances changed", list(with(m("a", 2, 3), twoInstances)), list(m("a", 1, 2)),
			[]Action{
				{Kind: AddVersions, Model: "a", Versions: []int64{3}},
				{Kind: Resize, Model: "a", Versions: []int64{2}},
				{Kind: RemoveVersions, Model: "a", Versions: []int64{1}},
			},
		},
		{
			"versions that are all new get the new instances anyway", list(with(m("a", 2), twoInstances)), list(m("a", 1)),
			[]Action{{Kind: AddVersions, Model: "a", Versions: []int64{2}}, {Kind: RemoveVersions, Model: "a", Versions: []int64{1}}},
		},
		{
			"a model loads after those that it calls", list(calls(m("a", 1), "c", "b"), m("b", 1), m("c", 1)), nil,
			[]Action{
				{Kind: Load, Model: "b", Versions: []int64{1}},
				{Kind: Load, Model: "c", Versions: []int64{1}},
				{Kind: Load, Model: "a", Versions: []int64{1}, After: []string{"b", "c"}},
			},
		},
		{
			"a model is unloaded before those that it calls", nil, list(m("a", 1), calls(m("b", 1), "a"), calls(m("c", 1), "b")),
			[]Action{
				{Kind: Unload, Model: "c", Versions: []int64{1}},
				{Kind: Unload, Model: "b", Versions: []int64{1}, After: []string{"c"}},
				{Kind: Unload, Model: "a", Versions: []int64{1}, After: []string{"b"}},
			},
		},
		{
			"a model stays until its caller no longer calls it", list(with(m("b", 1), otherConfig)), list(m("a", 1), calls(m("b", 1), "a")),
			[]Action{
				{Kind: Reload, Model: "b", Versions: []int64{1}},
				{Kind: Unload, Model: "a", Versions: []int64{1}, After: []string{"b"}},
			},
		},
		{
			"what is called and not there is nobody's concern", list(calls(m("a", 1), "nosuch", "a")), nil,
			[]Action{{Kind: Load, Model: "a", Versions: []int64{1}}},
		},
		{
			"a circle begins somewhere", list(calls(m("a", 1), "b"), calls(m("b", 1), "a")), nil,
			[]Action{
				{Kind: Load, Model: "b", Versions: []int64{1}},
				{Kind: Load, Model: "a", Versions: []int64{1}, After: []string{"b"}},
			},
		},
		{
			"models come, go and stay", list(m("new", 1), m("same", 1)), list(m("old", 1), m("same", 1)),
			[]Action{{Kind: Load, Model: "new", Versions: []int64{1}}, {Kind: Unload, Model: "old", Versions: []int64{1}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Plan(tt.desired, tt.actual)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
