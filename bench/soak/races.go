package main

import (
	"os"
	"path/filepath"
	"strings"
)

// raceReports counts the reports of the race detector in its files, whose names
// begin with prefix.
func raceReports(prefix string) (int, error) {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return 0, err
	}
	reports := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		reports += strings.Count(string(b), "WARNING: DATA RACE")
	}
	return reports, nil
}

// removeReports removes the reports of an earlier run.
func removeReports(prefix string) error {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
