package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/pprof/profile"
)

func TestMergeAddsProfilesAndLeavesOutFileNamesAndMethodsByName(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a", "b", "reflect.(*rtype).MethodByName"} {
		f := &profile.Function{ID: 1, Name: name, Filename: "/home/somebody/" + name + ".go"}
		m := &profile.Mapping{ID: 1, File: "/home/somebody/shoal"}
		l := &profile.Location{ID: 1, Mapping: m, Line: []profile.Line{{Function: f, Line: 3}}}
		p := &profile.Profile{
			SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}, PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1,
			Sample: []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{5}}}, Location: []*profile.Location{l}, Function: []*profile.Function{f}, Mapping: []*profile.Mapping{m},
		}
		path := filepath.Join(dir, fmt.Sprint(len(paths)))
		if err := write(path, p); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	sum := filepath.Join(dir, "sum")
	if err := merge(sum, paths); err != nil {
		t.Fatal(err)
	}
	got, err := read(sum)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range got.Function {
		names = append(names, f.Name+f.Filename)
	}
	for _, m := range got.Mapping {
		names = append(names, m.File)
	}
	slices.Sort(names)
	if want := []string{"", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("got functions and files %q, want %q", names, want)
	}
}

// The profile in the repository is of use only as long as it knows the code.
func TestProfileOfTheRepositoryKnowsTheHotPath(t *testing.T) {
	p, err := read("../../cmd/shoal/default.pgo")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, f := range p.Function {
		known[f.Name] = true
		if byName.MatchString(f.Name) {
			t.Errorf("cmd/shoal/default.pgo has %s, which makes the binary a sixth larger", f.Name)
		}
	}
	for _, name := range []string{
		"shoal/internal/sched.(*Batcher).Do", "shoal/internal/engine.(*Version).Infer", "shoal/internal/protocol/kservehttp.(*scanner).number",
	} {
		if !known[name] {
			t.Errorf("cmd/shoal/default.pgo does not have %s; make profile measures anew", name)
		}
	}
}
