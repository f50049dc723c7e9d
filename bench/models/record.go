package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"shoal/bench/internal/report"
)

// record writes the results to files, together with the cells of earlier runs: the whole
// grid takes hours.
func (o options) record(r results) error {
	if o.Out == "" {
		return nil
	}
	earlier, err := readResults(filepath.Join(o.Out, o.Name+".json"))
	if err != nil {
		return err
	}
	r.keep(earlier)
	return report.Write(o.Out, o.Name, r, r.page())
}

// readResults reads what was recorded; nothing if there is no such file.
func readResults(path string) (r results, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return results{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return results{}, fmt.Errorf("%s: %w; remove it to begin a new record", path, err)
	}
	return r, nil
}

// keep adds what earlier runs measured and this one did not.
func (r *results) keep(earlier results) {
	now := r.Cells
	for _, old := range earlier.Cells {
		if !slices.ContainsFunc(now, func(c result) bool { return c.replaces(old) }) {
			r.Cells = append(r.Cells, old)
		}
	}
	for _, old := range earlier.Costs {
		same := func(m modelCost) bool { return m.Model == old.Model && m.Instances == old.Instances }
		if !slices.ContainsFunc(r.Costs, same) {
			r.Costs = append(r.Costs, old)
		}
	}
	r.sort()
}

// replaces reports whether a result is of the same cell and has all comparisons of an
// older one.
func (r result) replaces(old result) bool {
	return r.Cell == old.Cell && r.Pinned == old.Pinned && (old.ToStatic == nil || r.ToStatic != nil) && (old.ToTriton == nil || r.ToTriton != nil)
}
