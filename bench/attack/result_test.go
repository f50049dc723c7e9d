package main

import (
	"strings"
	"testing"

	"shoal/bench/internal/watch"
)

func TestEveryFloorOfAClassIsHeld(t *testing.T) {
	good := func() figure {
		return figure{
			Class: "c", Made: 8, Bytes: 1, Growth: 10, Allowed: 10, Claimed: 10, ClaimedAllowed: 10, Burst: 6, Ratio: 1.5,
			Files: 10, FilesAfter: 14, Good: latency{Count: 1, P99: 250},
		}
	}
	if got := good().missed(mostGoodLatency); len(got) > 0 {
		t.Fatalf("got %q of a good figure, want nothing", got)
	}
	if f := (figure{Burst: 4, Ratio: 3}); f.dear() {
		t.Error("a burst that costs next to nothing is called dear")
	}
	for want, spoil := range map[string]func(*figure){
		"memory grew":        func(f *figure) { f.Growth = 11 },
		"set aside grew":     func(f *figure) { f.Claimed = 11 },
		"times the CPU":      func(f *figure) { f.Ratio = 1.51 },
		"good requests fail": func(f *figure) { f.Failed, f.Failure = 1, "x" },
		"at p99":             func(f *figure) { f.Good.P99 = 251 },
		"no good request":    func(f *figure) { f.Good.Count = 0 },
		"files are open":     func(f *figure) { f.FilesAfter = 15 },
		"no attack":          func(f *figure) { f.Made, f.Bytes = 0, 0 },
	} {
		f := good()
		spoil(&f)
		if got := strings.Join(f.missed(mostGoodLatency), "; "); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestEveryFloorOfAllTogetherIsHeld(t *testing.T) {
	good := func() *union {
		return &union{Bytes: 1, Start: watch.State{RSS: 100, Files: 10}, End: watch.State{RSS: 110, Files: 14}}
	}
	if got := good().missed(); len(got) > 0 {
		t.Fatalf("got %q of a good run, want nothing", got)
	}
	for want, spoil := range map[string]func(*union){
		"good requests failed": func(u *union) { u.Failed = 1 },
		"memory is":            func(u *union) { u.End.RSS = 111 },
		"files are open":       func(u *union) { u.End.Files = 15 },
		"no attack":            func(u *union) { u.Bytes = 0 },
	} {
		u := good()
		spoil(u)
		if got := strings.Join((results{Together: u}).missed(), "; "); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
