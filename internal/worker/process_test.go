package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A logBuffer is a log that tests can read while it is written.
type logBuffer struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// shell returns a command that runs a script with sh, and its log.
func shell(script string) (Command, *logBuffer) {
	log := new(logBuffer)
	return Command{
		Model: "m", Name: "m_0_0", Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}, log
}

// start starts a command and sees to its end.
func start(t *testing.T, cmd Command) *Process {
	t.Helper()
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(nil); <-p.Done() })
	return p
}

// eventually polls until cond holds, for at most limit.
func eventually(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("got none of %s after %v", what, limit)
		case <-tick.C:
		}
	}
}

// exitOf waits for the end of a child.
func exitOf(t *testing.T, p *Process) *Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the child has not ended after 20 s")
	}
	var exit *Exit
	if !errors.As(p.Err(), &exit) {
		t.Fatalf("got error %v, want an *Exit", p.Err())
	}
	return exit
}

func TestExitIsToldInWords(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"exit code", "exit 3", "ended with exit code 3"},
		{"signal from nobody here", "kill -9 $$", "killed by signal 9 (SIGKILL)"},
		{"segfault", "kill -SEGV $$", "killed by signal 11 (SIGSEGV)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, _ := shell("echo first >&2; echo last words >&2; " + c.script)
			exit := exitOf(t, start(t, cmd))
			if got := exit.Reason(); got != c.want {
				t.Errorf("got reason %q, want %q", got, c.want)
			}
			if got := exit.LastLine(); got != "last words" {
				t.Errorf("got last line %q, want %q", got, "last words")
			}
			if got := exit.Lost().Error(); !strings.Contains(got, `model "m": worker m_0_0 ended while it ran this batch: `+c.want+"; the last line of its stderr: last words") {
				t.Errorf("got %q, want model, worker, reason and last line", got)
			}
		})
	}
}

func TestKillKeepsTheFirstReason(t *testing.T) {
	cmd, _ := shell("sleep 60")
	p := start(t, cmd)
	p.Kill(errors.New("it was slow"))
	p.Kill(errors.New("another"))
	exit := exitOf(t, p)
	if got, want := exit.Reason(), "stopped by the server: it was slow"; got != want {
		t.Errorf("got reason %q, want %q", got, want)
	}
	if exit.Signal != syscall.SIGKILL {
		t.Errorf("got signal %v, want SIGKILL", exit.Signal)
	}
}

func TestStartSaysWhyAProgramDoesNotRun(t *testing.T) {
	cmd, _ := shell("")
	cmd.Path = "/nonexistent/python"
	if _, err := Start(cmd); err == nil || !strings.Contains(err.Error(), "/nonexistent/python") {
		t.Errorf("got %v, want an error that names the program", err)
	}
}

func TestAChildThatEndsByItselfKeepsItsOwnReason(t *testing.T) {
	cmd, log := shell(`trap "exit 7" TERM; echo ready; while :; do sleep 0.01; done`)
	p := start(t, cmd)
	eventually(t, 10*time.Second, "the child's word", func() bool { return strings.Contains(log.String(), "ready") })
	p.Stop()
	if got, want := exitOf(t, p).Reason(), "ended with exit code 7"; got != want {
		t.Errorf("got reason %q, want %q", got, want)
	}
}
