package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/watch"
)

func TestAccountsAgreeWithinWhatWasCancelled(t *testing.T) {
	for _, c := range []struct {
		name             string
		clients          entry
		success, failure int
		want             bool
	}{
		{"nothing was cancelled", entry{Good: 10, Killed: 2}, 10, 2, true},
		{"an answer too many", entry{Good: 10}, 11, 0, false},
		{"an answer too few", entry{Good: 10, Cancelled: 5}, 9, 0, false},
		{"cancelled ones that were answered, and some that never came", entry{Good: 10, Cancelled: 5}, 13, 1, true},
		{"a failure that no client saw", entry{Good: 10}, 10, 1, false},
		{"more in all than were sent", entry{Good: 10, Cancelled: 5}, 14, 3, false},
	} {
		a := account{Model: "m", entry: c.clients, Success: c.success, Failure: c.failure}
		if got := a.agrees(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestEveryFaultIsMissed(t *testing.T) {
	good := func() results {
		state := watch.State{RSS: 100 << 20, Heap: 10 << 20, Files: 50, Goroutines: 40}
		return results{Kills: 2, Start: state, End: state, Models: []account{{Model: "m", entry: entry{Good: 3, Killed: 1}, Success: 3, Failure: 1}}}
	}
	if got := good().missed(); len(got) > 0 {
		t.Fatalf("got %q of a good run, want nothing", got)
	}
	for want, spoil := range map[string]func(*results){
		"wrong answers":    func(r *results) { r.Wrong = []string{"w"} },
		"requests failed":  func(r *results) { r.Failed = []string{"f"} },
		"race detector":    func(r *results) { r.Races = 1 },
		"exit code 66":     func(r *results) { r.ExitCode = 66 },
		"no good answer":   func(r *results) { r.Models[0].Good, r.Models[0].Success = 0, 0 },
		"the server":       func(r *results) { r.Models[0].Success = 4 },
		"with 0 kills":     func(r *results) { r.Kills = 0 },
		"open files grew":  func(r *results) { r.End.Files = 61 },
		"goroutines grew":  func(r *results) { r.End.Goroutines = 61 },
		"memory grew from": func(r *results) { r.End.RSS = 151 << 20 },
		"heap grew from":   func(r *results) { r.Race, r.End.Heap = true, 16<<20 },
	} {
		r := good()
		spoil(&r)
		if got := strings.Join(r.missed(), "; "); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestOnlyWithdrawnRequestsCountAsCancelled(t *testing.T) {
	l, m := newLedger(), ask.Model{Name: "m"}
	l.note(m, status.Error(codes.Canceled, "x"), true)
	l.note(m, status.Error(codes.Canceled, "nobody asked for it"), false)
	l.note(m, &ask.RefusedError{Status: 500}, true)
	l.note(m, &ask.StreamError{Text: "worker was killed by signal 9 (SIGKILL)"}, false)
	l.note(m, &ask.StreamError{Text: "the worker closed its connection to the server"}, false)
	l.note(m, &ask.RefusedError{Status: 503, Text: "it died or did not start 3 times in a row; last: ended with exit code 137"}, false)
	if got, want := *l.entries["m"], (entry{Killed: 3, Cancelled: 1}); got != want || len(l.failed) != 2 {
		t.Errorf("got %+v and %q, want %+v and two failures", got, l.failed, want)
	}
}

func TestRaceReportsAreCountedAndRemoved(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "race")
	if err := os.WriteFile(prefix+".123", []byte("==\nWARNING: DATA RACE\n==\nWARNING: DATA RACE\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := raceReports(prefix); got != 2 || err != nil {
		t.Errorf("got %d, %v, want 2 reports", got, err)
	}
	if err := removeReports(prefix); err != nil {
		t.Fatal(err)
	}
	if got, err := raceReports(prefix); got != 0 || err != nil {
		t.Errorf("got %d, %v, want none", got, err)
	}
}
