package kservehttp

import (
	"net"
	"os"
	"runtime"
	"testing"
)

func TestCloseLeavesNothingOpen(t *testing.T) {
	e := startEngine(t, oddModels)
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round := func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, err := Start(Options{}, e, l)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if resp, body := exchange(t, l.Addr().String(), inferRequest("var", input(goodInput))); resp == nil || resp.StatusCode != 200 {
				t.Fatalf("got %v %s, want 200", resp, body)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	round() // opens what the runtime keeps
	before, routines := files(), runtime.NumGoroutine()
	for range 10 {
		round()
	}
	eventually(t, "files and goroutines are as many as before", func() bool {
		return files() <= before && runtime.NumGoroutine() <= routines
	})
}
