package main

import (
	"os"
	"regexp"

	"github.com/google/pprof/profile"
)

// byName matches the lookup of a method by its name, which happens once, at the start. If the profile has it, the compiler
// makes the call a direct one, and the linker no longer sees which name it is for: it keeps every exported method of
// every type.
var byName = regexp.MustCompile(`^reflect\..*\.Method(ByName)?$`)

// merge writes the sum of the profiles to path: the functions of Shoal and of
// what it is built from, without the names of files on this machine.
func merge(path string, profiles []string) error {
	var all []*profile.Profile
	for _, p := range profiles {
		one, err := read(p)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	sum, err := profile.Merge(all)
	if err != nil {
		return err
	}
	for _, m := range sum.Mapping {
		m.File, m.BuildID = "", ""
	}
	for _, f := range sum.Function { // Go goes by their names and lines
		f.Filename = ""
	}
	sum.Comments = nil
	sum.FilterSamplesByName(nil, byName, nil, nil)
	return write(path, sum.Compact())
}

func write(path string, p *profile.Profile) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := p.Write(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func read(path string) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return profile.Parse(file)
}
