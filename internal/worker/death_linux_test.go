package worker

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serverEnv makes the test binary a server that starts a child and waits.
const serverEnv = "SHOAL_TEST_SERVER"

func TestMain(m *testing.M) {
	if script := os.Getenv(serverEnv); script != "" {
		serveScript(script)
	}
	os.Exit(m.Run())
}

// serveScript runs a script whose output, through the log, is this process's own.
func serveScript(script string) {
	os.Unsetenv(serverEnv)
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	if _, err := Start(Command{Model: "m", Name: "m_0_0", Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Log: log}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {} // until killed
}

// alive reports whether a process is there and not a zombie.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// pids reads "pids A B ..." from what a child has printed.
func pids(t *testing.T, text string) []int {
	t.Helper()
	_, rest, ok := strings.Cut(text, "pids ")
	if !ok {
		return nil
	}
	rest, _, _ = strings.Cut(rest, `"`)
	var out []int
	for f := range strings.FieldsSeq(rest) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("got %q, want a pid", f)
		}
		out = append(out, pid)
	}
	return out
}

// family is a script with a grandchild, which tells both pids.
const family = `sleep 300 & echo pids $$ $!; wait`

func TestWorkersEndWithAServerThatIsKilled(t *testing.T) {
	for i, script := range []string{
		family,
		"exec 3<&-; " + family, // the child has closed its lifeline
	} {
		for range 10 {
			server := exec.Command(os.Args[0])
			server.Env = append(os.Environ(), serverEnv+"="+script)
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			var children []int
			for lines := bufio.NewScanner(out); len(children) == 0 && lines.Scan(); {
				children = pids(t, lines.Text())
			}
			_ = server.Process.Signal(syscall.SIGKILL)
			_ = server.Wait()
			if len(children) != 2 {
				t.Fatalf("script %d: got pids %v, want those of a child and a grandchild", i, children)
			}
			for _, pid := range children {
				eventually(t, 5*time.Second, fmt.Sprintf("the end of %d (script %d, family %v)", pid, i, children), func() bool { return !alive(pid) })
			}
		}
	}
}

func TestGrandchildrenEndWithTheChild(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *Process)
	}{
		{"killed", func(p *Process) { p.Kill(nil) }},
		{"stopped", func(p *Process) { p.Stop() }},
		{"killed by somebody else", func(p *Process) { _ = syscall.Kill(p.PID(), syscall.SIGKILL) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, log := shell(family)
			p := start(t, cmd)
			var family []int
			eventually(t, 10*time.Second, "pids", func() bool { family = pids(t, log.String()); return len(family) == 2 })
			c.end(p)
			exitOf(t, p)
			eventually(t, 5*time.Second, "the grandchild's end", func() bool { return !alive(family[1]) })
		})
	}
}

func TestStopAsksThenTerminatesThenKills(t *testing.T) {
	asked := make(chan struct{}, 1)
	for _, c := range []struct {
		name, script string
		ask          bool
		signal       syscall.Signal
		code         int
	}{
		{"it ends when asked", `echo ready; read line <&3; exit 7`, true, 0, 7},
		{"it ends by SIGTERM", `echo ready; exec sleep 300`, true, syscall.SIGTERM, -1},
		{"it ends by SIGTERM, handled", `trap "exit 5" TERM; echo ready; while :; do sleep 0.01; done`, false, 0, 5},
		{"it ignores SIGTERM", `trap "" TERM; echo ready; while :; do sleep 0.01; done`, false, syscall.SIGKILL, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			cmd, log := shell(c.script)
			cmd.Files = []*os.File{read}
			cmd.Grace = 200 * time.Millisecond
			if c.ask {
				cmd.Ask = func() { write.Close(); asked <- struct{}{} }
			}
			p := start(t, cmd)
			eventually(t, 10*time.Second, "the child's word", func() bool { return strings.Contains(log.String(), "ready") })
			p.Stop()
			exit := exitOf(t, p)
			if exit.Signal != c.signal || exit.Code != c.code {
				t.Errorf("got signal %v and code %d, want %v and %d", exit.Signal, exit.Code, c.signal, c.code)
			}
			if c.ask {
				<-asked
			} else {
				write.Close()
			}
		})
	}
}

func TestLifelineIsOpenWhileTheServerLives(t *testing.T) {
	cmd, log := shell(`echo fd $SHOAL_LIFELINE_FD; eval "read line <&$SHOAL_LIFELINE_FD"; echo end of file`)
	cmd.Files = []*os.File{os.Stdin, os.Stdin}
	p := start(t, cmd)
	eventually(t, 10*time.Second, "the number of the lifeline", func() bool { return strings.Contains(log.String(), "fd 5") })
	select {
	case <-p.Done():
		t.Errorf("got the child's end, want it waiting; log: %s", log)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestRSSIsThatOfTheChild(t *testing.T) {
	cmd, log := shell(`echo ready; eval "read line <&$SHOAL_LIFELINE_FD"`)
	p := start(t, cmd)
	eventually(t, 10*time.Second, "the child's word", func() bool { return strings.Contains(log.String(), "ready") })
	if got := p.RSS(); got < 100<<10 || got > 100<<20 {
		t.Errorf("got %d bytes resident, want what a shell has", got)
	}
	p.Kill(nil)
	exitOf(t, p)
	if got := p.RSS(); got != 0 {
		t.Errorf("got %d bytes for a child that is gone, want 0", got)
	}
}
