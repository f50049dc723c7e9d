package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// children lists the children of all threads, zombies too.
func children(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range tasks {
		text, _ := os.ReadFile(f) // the thread may have ended
		out = append(out, strings.Fields(string(text))...)
	}
	return out
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestAThousandRestartsLeakNothing kills a supervised child a thousand times.
func TestAThousandRestartsLeakNothing(t *testing.T) {
	cmd, _ := shell("echo something; echo something >&2; exec sleep 300")
	limits := DefaultLimits()
	limits.First, limits.Longest = time.Microsecond, time.Microsecond
	s, err := Supervise(t.Context(), Config[*Process]{
		Model: "m", Name: "m_0_0", Log: cmd.Log, Limits: limits,
		Start: func(context.Context) (*Process, error) { return Start(cmd) },
	})
	if err != nil {
		t.Fatal(err)
	}
	restart := func(n int) {
		for range n {
			w, err := s.Acquire()
			for err != nil { // the pause is of a microsecond
				runtime.Gosched()
				w, err = s.Acquire()
			}
			_ = syscall.Kill(w.PID(), syscall.SIGKILL)
			<-w.Done() // on a busy machine that takes longer than Lost waits before it kills
			if err := s.Lost(w, nil); !strings.Contains(err.Error(), "SIGKILL") {
				t.Fatalf("got %v, want the death told", err)
			}
		}
		eventually(t, 10*time.Second, "the next worker", func() bool { return s.Status().State == Ready })
	}
	restart(50)
	files, goroutines, heap, tasks := openFiles(t), runtime.NumGoroutine(), liveHeap(), threads(t)
	restart(1000)
	if got := s.Status().Restarts; got != 1050 {
		t.Errorf("got %d restarts, want 1050", got)
	}
	eventually(t, 10*time.Second, "an end of extra goroutines", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	if got := openFiles(t); got > files+6 {
		t.Errorf("got %d open files, want about %d", got, files)
	}
	if got := threads(t); got > tasks+8 {
		t.Errorf("got %d threads, want about %d", got, tasks)
	}
	if got := liveHeap(); got > heap+1<<20 {
		t.Errorf("got %d bytes of live heap, want about %d", got, heap)
	}
	s.Close()
	eventually(t, 10*time.Second, "an end of all children", func() bool { return len(children(t)) == 0 })
}

func TestAFailedStartLeaksNothing(t *testing.T) {
	cmd, _ := shell("")
	cmd.Path = "/nonexistent/python"
	_, _ = Start(cmd)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 100 {
		if _, err := Start(cmd); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("got %v, want a missing file", err)
		}
	}
	if got := openFiles(t); got > files {
		t.Errorf("got %d open files, want %d", got, files)
	}
	eventually(t, 10*time.Second, "an end of extra goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
}

func TestOOMKillsAreReadFromBothKindsOfGroup(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int64
		ok         bool
	}{
		{"version 2", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", 2, true},
		{"version 1", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7, true},
		{"an old kernel", "oom_kill_disable 0\nunder_oom 0\n", 0, false},
		{"nonsense", "oom_kill x\n", 0, false},
	} {
		if got, ok := parseOOMKills([]byte(c.text)); got != c.want || ok != c.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestOOMKillIsTold(t *testing.T) {
	exit := &Exit{Signal: syscall.SIGKILL, OutOfMemory: true}
	if got := exit.Reason(); !strings.Contains(got, "ran out of memory") {
		t.Errorf("got %q, want the shortage of memory named", got)
	}
	file := filepath.Join(t.TempDir(), "memory.events")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("oom_kill 1\n")
	c := oomCounter{file, 1}
	if c.rose() {
		t.Error("got a rise, want none")
	}
	write("oom_kill 2\n")
	if !c.rose() {
		t.Error("got no rise, want one")
	}
}
