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

// A row is what became of one criterion, and when.
type row struct {
	Name    string       `json:"name"`
	What    string       `json:"what"`
	Verdict string       `json:"verdict"`
	Figure  string       `json:"figure"`
	Seconds float64      `json:"seconds"`
	Facts   report.Facts `json:"facts"`
}

// keep writes rows to criteria.json and criteria.md under dir. Rows of an earlier
// run stay for criteria that did not run this time, each with its own facts.
func keep(dir string, rows []row) error {
	var all []row
	data, err := os.ReadFile(filepath.Join(dir, "criteria.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, "criteria.json"), err)
		}
	}
	all = slices.DeleteFunc(all, func(old row) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return r.Name == old.Name })
	})
	all = append(all, rows...)
	slices.SortFunc(all, func(a, b row) int { return number(a.Name) - number(b.Name) })
	return report.Write(dir, "criteria", all, page(all))
}

// number returns n of Pn.
func number(name string) (n int) {
	_, _ = fmt.Sscanf(name, "P%d", &n) // 0 of what is not one
	return n
}

func page(rows []row) string {
	text := "# What shoal perf promises\n\nCriteria by number; each was run with the command beside it, on the day and with the load average of the machine that are beside it.\n"
	for _, r := range rows {
		text += fmt.Sprintf("\n**%s %s**: %s\n\n- %s\n- %s, commit %s, %d cores, load average %s, %.0f s, `%s`\n",
			r.Name, r.Verdict, r.What, r.Figure, r.Facts.Date, r.Facts.Commit, r.Facts.Cores, r.Facts.Load, r.Seconds, r.Facts.Command)
	}
	return text
}
