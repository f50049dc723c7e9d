package library

import (
	"path/filepath"

	"shoal/internal/backend/onnx/ort"
)

// A Candidate is a library that was found, with its version and providers.
type Candidate struct {
	Path      string
	Origin    Origin
	Version   string
	Providers []string // execution providers, best first
	Err       error    // why it cannot be used; nil when it can
}

// List returns all libraries in the places, in the order of Find. It loads
// each, so it is for a short-lived command.
func List(p Places) []Candidate {
	var list []Candidate
	seen := make(map[string]bool)
	for _, place := range []struct {
		origin Origin
		paths  []string
	}{
		{FromFlag, given(p.Flag)},
		{FromEnvironment, given(p.Variable)},
		{FromData, p.inData()},
		{FromPython, p.inPython()},
		{FromSystem, p.inSystem()},
	} {
		for _, path := range place.paths {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			c := Candidate{Path: path, Origin: place.origin}
			c.Version, c.Providers, c.Err = ort.Inspect(path)
			list = append(list, c)
		}
	}
	return list
}

func given(path string) []string {
	if path == "" {
		return nil
	}
	return []string{path}
}
