package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// hasRaceDetector says whether a program was built with the race detector. A
// file that cannot be read counts as built without: its memory is then judged.
func hasRaceDetector(program string) bool {
	info, err := buildinfo.ReadFile(program)
	return err == nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

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
