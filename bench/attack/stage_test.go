package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/bench/internal/attack"
	"shoal/internal/race"
)

func TestMain(m *testing.M) {
	if os.Getenv(referenceEnv) != "" {
		if err := attack.ServeReference(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// binary returns the path of the built server, or skips the test when there is
// none; in CI it fails.
func binary(t *testing.T) string {
	t.Helper()
	if race.Enabled {
		t.Skip("the race detector slows the attackers, not the server, and what they cost it is measured")
	}
	path := os.Getenv("SHOAL")
	if path == "" {
		path = "../../build/shoal"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v; CI needs the built server", err)
		}
		t.Skipf("%v; make build makes it, or set SHOAL", err)
	}
	return path
}

// newStage returns a stage for short runs.
func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{shoal: binary(t), work: t.TempDir(), budget: 64 << 20, calm: 150 * time.Millisecond, attack: 700 * time.Millisecond}
	region, remove, err := attack.MakeRegion()
	if err != nil {
		t.Logf("without shared memory: %v", err)
		return s
	}
	t.Cleanup(remove)
	s.region = region
	return s
}

// longest is what good requests may take here, at p99: other tests run at the same
// time, so that only a client that was stopped can be told. The bench is stricter.
const longest = 5 * time.Second

// held runs the class and fails the test when it misses a floor twice: a machine
// that does something else as well has bad seconds.
func (s stage) held(t *testing.T, c attack.Class) figure {
	t.Helper()
	f, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if first := f.missed(longest); len(first) > 0 {
		t.Logf("once more: %s", strings.Join(first, "; "))
		if f, err = s.run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range f.missed(longest) {
		t.Error(words)
	}
	return f
}
