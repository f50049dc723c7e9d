package python

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
)

// startInstance starts an instance of a model that is run by a handler in testdata.
func startInstance(t testing.TB, b *Backend, handler string, cfg *modelpb.ModelConfig) *instance {
	t.Helper()
	m, err := open(t, b, handler, cfg)
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Start(t.Context(), backend.Placement{Name: cfg.GetName() + "_0_0", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Errorf("close the instance: %v", err)
		}
	})
	return in.(*instance)
}

// pid returns the process id of the instance's worker.
func (in *instance) pid() int {
	l, err := in.sup.Acquire()
	if err != nil {
		return 0
	}
	defer in.sup.Release(l)
	return l.process.PID()
}

// childCPU reads the processor time of another process, to a nanosecond.
func childCPU(t testing.TB, pid int) (total time.Duration) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue
		}
		var ns int64
		if _, err := fmt.Sscan(strings.Fields(string(text))[0], &ns); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(ns)
	}
	return total
}

// eventually waits until check has nothing to complain of.
func eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", limit, err)
		}
		runtime.Gosched()
	}
}
