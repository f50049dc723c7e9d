package python

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
)

// fakeMPS stands for NVIDIA's program: the service with -f, else it does the
// command that it reads. It writes both down beside itself.
const fakeMPS = `#!/bin/sh
calls=$(dirname "$0")/calls
dir=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
	echo "-f $CUDA_VISIBLE_DEVICES" >>"$calls"
	[ -e "$calls.broken" ] && exit 3
	echo $$ >"$dir/up"
	exec sleep 600
fi
[ -e "$dir/up" ] || exit 1
read -r line
echo "$line" >>"$calls"
case $line in
get_server_list) [ -e "$dir/server" ] && echo 4711 ;;
get_server_status*) echo ACTIVE ;;
start_server*) touch "$dir/server" ;;
quit) kill "$(cat "$dir/up")" ;;
esac
exit 0
`

// newFakeMPS puts the fake first in PATH and returns a service with it, the file
// with its calls, and its log.
func newFakeMPS(t *testing.T, environ ...string) (s *mps, calls string, log *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, mpsProgram), []byte(fakeMPS), 0o755); err != nil {
		t.Fatal(err)
	}
	path := dir + string(filepath.ListSeparator) + os.Getenv("PATH")
	t.Setenv("PATH", path)
	log = new(bytes.Buffer)
	temp := t.TempDir()
	s = &mps{
		environ: append([]string{"PATH=" + path}, environ...), usual: filepath.Join(dir, "usual"),
		temp: func() (string, error) { return temp, nil }, log: slog.New(slog.NewTextHandler(log, nil)),
	}
	t.Cleanup(s.close)
	return s, filepath.Join(dir, "calls"), log
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func TestMPSIsStartedOnceAndEndsWithTheServer(t *testing.T) {
	s, calls, log := newFakeMPS(t, "CUDA_VISIBLE_DEVICES=1")
	env := s.join()
	if len(env) != 2 || !strings.HasPrefix(env[0], mpsFolder+"=") || !slices.Equal(env, s.join()) {
		t.Fatalf("got %q, want the folders of one service; log: %s", env, log)
	}
	begun := []string{"-f 1", fmt.Sprintf("start_server -uid %d", os.Getuid()), "get_server_list", "get_server_status 4711"}
	if got := lines(t, calls); !slices.Equal(got, begun) {
		t.Errorf("got the calls %q, want %q", got, begun)
	}
	s.close()
	if got := lines(t, calls); !slices.Equal(got, append(begun, "quit")) {
		t.Errorf("got the calls %q, want quit at the end", got)
	}
	if s.process.Err() == nil {
		t.Error("the service runs on")
	}
	if env := s.join(); env != nil {
		t.Errorf("got %q from a server that ends, want nothing", env)
	}
}

func TestMPSThatEndsIsStartedAgain(t *testing.T) {
	s, calls, log := newFakeMPS(t)
	for i := range mpsStarts {
		if s.join() == nil {
			t.Fatalf("start %d: got no service; log: %s", i, log)
		}
		if err := syscall.Kill(s.process.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.process.Done()
	}
	if env := s.join(); env != nil || !strings.Contains(log.String(), "it has ended 4 times") {
		t.Errorf("got %q, want none after %d starts; log: %s", env, mpsStarts, log)
	}
	if n := strings.Count(strings.Join(lines(t, calls), "\n"), "-f"); n != mpsStarts {
		t.Errorf("got %d starts, want %d", n, mpsStarts)
	}
}

func TestWithoutMPSWorkersHaveAGPUInTurns(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		prepare func(t *testing.T, s *mps, calls string)
		want    string
		calls   int
	}{
		{"it is not installed", nil, func(t *testing.T, _ *mps, _ string) { t.Setenv("PATH", t.TempDir()) }, "there is no nvidia-cuda-mps-control in PATH", 0},
		{"the operator has chosen one", []string{mpsFolder + "=/run/mps"}, nil, "CUDA_MPS_PIPE_DIRECTORY is set", 0},
		{"parts of a GPU", []string{"CUDA_VISIBLE_DEVICES=MIG-1"}, nil, "MIG", 0},
		{"one runs", nil, func(t *testing.T, s *mps, _ string) {
			if err := os.Mkdir(s.usual, 0o755); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", filepath.Join(s.usual, "control"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}, "it runs already", 0},
		{"it cannot run here", nil, func(t *testing.T, _ *mps, calls string) { touch(t, calls+".broken") }, "ended with exit code 3", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, calls, log := newFakeMPS(t, c.environ...)
			if c.prepare != nil {
				c.prepare(t, s, calls)
			}
			for range 2 {
				if env := s.join(); env != nil {
					t.Errorf("got %q, want nothing", env)
				}
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), c.want) {
				t.Errorf("got the log %q, want one line with %q", log, c.want)
			}
			if got := strings.Count(strings.Join(lines(t, calls), "\n"), "-f"); got != c.calls {
				t.Errorf("got %d starts, want %d", got, c.calls)
			}
		})
	}
}

func TestInstancesThatShareAGPUUseMPS(t *testing.T) {
	s, _, log := newFakeMPS(t)
	b := New(Options{Environ: s.environ})
	b.mps = s
	for _, c := range []struct {
		kind  modelpb.ModelInstanceGroup_Kind
		share int
		want  bool
	}{
		{modelpb.ModelInstanceGroup_KIND_GPU, 3, true},
		{modelpb.ModelInstanceGroup_KIND_GPU, 1, false},
		{modelpb.ModelInstanceGroup_KIND_CPU, 0, false},
	} {
		env, err := b.environment(settings{}, backend.Placement{Kind: c.kind, Share: c.share, Count: 3})
		if err != nil {
			t.Fatal(err)
		}
		if got := newVariables(env).get(mpsFolder) != ""; got != c.want {
			t.Errorf("%v, %d on the GPU: got MPS %v, want %v; log: %s", c.kind, c.share, got, c.want, log)
		}
	}
	env, err := b.environment(settings{env: []string{mpsFolder + "="}}, backend.Placement{Kind: modelpb.ModelInstanceGroup_KIND_GPU, Share: 3})
	if err != nil || newVariables(env).get(mpsFolder) != "" {
		t.Errorf("got %q, %v; want the model's own word to count", env, err)
	}
	pid := s.process.PID()
	b.Close()
	eventually(t, 5*time.Second, func() error {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
}
