package peer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shoal/internal/load"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	// pollEvery is how often a starting server is asked whether it is ready: the
	// error of the start time, and cheap enough not to slow the start.
	pollEvery = time.Millisecond
)

// A Command says how a server is started. Its ports are added when it is.
type Command struct {
	Name string   // such as "shoal" or "triton"
	Args []string // the program and its arguments
	Env  []string // added to this process's environment
	Log  string   // where its output goes
	CPUs []int    // the cores it may use; all when empty
	// Ready is the path that answers 200 when the server is ready; that of the
	// KServe protocol when empty.
	Ready string
}

// String returns the command as one would type it in the working directory,
// without its ports.
func (c Command) String() string {
	line := strings.Join(append(append([]string(nil), c.Env...), c.Args...), " ")
	line = strings.ReplaceAll(line, os.Getenv("PATH"), "$PATH")
	if wd, err := os.Getwd(); err == nil {
		line = strings.ReplaceAll(line, wd+"/", "")
	}
	if home, err := os.UserHomeDir(); err == nil {
		line = strings.ReplaceAll(line, home+"/", "$HOME/")
	}
	return line
}

// A Server is a running server.
type Server struct {
	Name                string
	HTTP, GRPC, Metrics string // addresses
	Process             load.Process
	// Workers are the processes that the server had started when it became
	// ready, or when they were last looked for: the processes of Python models.
	Workers []load.Process
	// Startup is the time from exec to the first positive answer of the path
	// that says so.
	Startup time.Duration

	cmd    *exec.Cmd
	exited chan error // one value, when the process has ended
}

// errEnded is what a start comes to when the process ends by itself.
var errEnded = errors.New("it ended before it was ready")

// Start runs the command and waits until the server is ready. The caller must
// Close it. A server that ends at once is tried again, with other ports: those
// that were free may be taken by the time it listens.
func Start(ctx context.Context, c Command) (s *Server, err error) {
	for range 3 {
		if s, err = startOnce(ctx, c); !errors.Is(err, errEnded) {
			break
		}
	}
	return s, err
}

func startOnce(ctx context.Context, c Command) (*Server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Args[0], append(c.Args[1:],
		"--http-port", ports[0], "--grpc-port", ports[1], "--metrics-port", ports[2],
		"--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1")...)
	cmd.Env = append(os.Environ(), c.Env...)
	// Its own group, so that an interrupt at the terminal reaches only us and
	// the servers are stopped in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(c.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the server has its own handle of it
	cmd.Stdout, cmd.Stderr = log, log

	start := time.Now()
	if err := startOn(cmd, c.CPUs); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	s := &Server{
		Name: c.Name, HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], Metrics: "127.0.0.1:" + ports[2],
		Process: load.Watch(cmd.Process.Pid), cmd: cmd, exited: make(chan error, 1),
	}
	go func() { s.exited <- cmd.Wait() }()
	if err := s.awaitReady(ctx, cmp.Or(c.Ready, "/v2/health/ready")); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; the end of %s:\n%s", c.Name, err, c.Log, tail(c.Log)), s.Close())
	}
	s.Startup = time.Since(start)
	if err := s.FindWorkers(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// awaitReady asks until the server says that it is ready.
func (s *Server) awaitReady(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+path, nil)
	if err != nil {
		return err
	}
	for {
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case err := <-s.exited:
			s.exited <- err // for Close
			return fmt.Errorf("%w: %v", errEnded, s.cmd.ProcessState)
		case <-time.After(pollEvery):
		}
	}
}

// FindWorkers looks again for the processes that the server has started.
func (s *Server) FindWorkers() (err error) {
	s.Workers, err = s.Process.Descendants()
	return err
}

// Pause stops the server and all in its process group where they are: some servers
// take a good part of a core while they wait for requests.
func (s *Server) Pause() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGCONT) }

// Close ends the server, politely at first, and waits until it has ended. What it
// leaves behind in its process group is ended too.
func (s *Server) Close() error {
	_ = s.Resume() // it may be gone
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // there is nobody, as a rule
		return nil
	case <-time.After(stopTimeout):
	}
	err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // with its workers
	<-s.exited
	return errors.Join(fmt.Errorf("%s did not end within %v of SIGTERM", s.Name, stopTimeout), err)
}

// ExitCode returns the code with which the process ended, -1 when a signal ended
// it. It is known when Close has returned.
func (s *Server) ExitCode() int { return s.cmd.ProcessState.ExitCode() }

// freePorts returns ports that are free now. Triton does not take port 0, so
// both servers get theirs in this way.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after the loop: each listener must get another port
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// FreeAddress returns an address on loopback that is free now.
func FreeAddress() (string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + ports[0], nil
}

// tail returns the last lines of a file.
func tail(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
}
