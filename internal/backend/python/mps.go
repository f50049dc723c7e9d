package python

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"shoal/internal/worker"
)

const (
	// mpsProgram starts NVIDIA's Multi-Process Service, and passes commands to it.
	mpsProgram = "nvidia-cuda-mps-control"
	// mpsFolder names the folder of the service that a process uses.
	mpsFolder = "CUDA_MPS_PIPE_DIRECTORY"
	// mpsLogs names the folder of the service's log.
	mpsLogs = "CUDA_MPS_LOG_DIRECTORY"
	// mpsUsual is where a process looks for the service without mpsFolder.
	mpsUsual = "/tmp/nvidia-mps"
	// mpsPatience is how long the service may take to start.
	mpsPatience = 10 * time.Second
	// mpsStarts is how often the service is started before the server gives up:
	// the first time, and after it ended by itself.
	mpsStarts = 4
)

// An mps is this server's own Multi-Process Service (MPS) of NVIDIA's driver.
// Processes that share a GPU without it have it in turns; with it their work
// runs at the same time. The service ends with the server, whatever ends that.
type mps struct {
	environ []string
	temp    func() (string, error) // the folder for temporary files
	usual   string                 // mpsUsual
	log     *slog.Logger

	mu      sync.Mutex // protects the fields below
	off     bool       // it is not used, for a reason that was logged
	starts  int
	program string
	folder  string
	process *worker.Process
}

// join returns the variables by which a worker uses the service, which the first
// call starts; none when workers share the GPU in turns.
func (s *mps) join() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil
	}
	if s.process == nil || s.process.Err() != nil {
		begin := time.Now()
		if err := s.start(); err != nil {
			s.off = true
			s.log.Info("the instances of a model on one GPU use it in turns: NVIDIA's MPS is not started", "reason", err)
			return nil
		}
		s.log.Info("NVIDIA's MPS is started: the instances of a model on one GPU use it at the same time", "after", time.Since(begin).Round(time.Millisecond))
	}
	return s.variables()
}

func (s *mps) variables() []string {
	return []string{mpsFolder + "=" + s.folder, mpsLogs + "=" + s.folder}
}

// start starts the service and returns when it has reached the GPUs. What it has
// started when it fails is ended.
func (s *mps) start() error {
	if err := s.wanted(); err != nil {
		return err
	}
	if s.starts++; s.starts > mpsStarts {
		return fmt.Errorf("it has ended %d times", mpsStarts)
	}
	var err error
	if s.program, err = exec.LookPath(mpsProgram); err != nil {
		return fmt.Errorf("there is no %s in PATH", mpsProgram)
	}
	if s.folder, err = s.newFolder(); err != nil {
		return err
	}
	s.process, err = worker.Start(worker.Command{
		Name: mpsProgram, Path: s.program, Args: []string{"-f"}, Env: s.environment(), Log: slog.New(slog.DiscardHandler),
		Ask: func() { _, _ = s.ask("quit") }, Grace: 2 * time.Second, // it is killed if it does not obey
	})
	if err != nil {
		return err
	}
	if err := s.awaitServer(); err != nil {
		s.process.Stop()
		return err
	}
	return nil
}

// wanted returns an error if the operator has decided, or where the service
// would not work.
func (s *mps) wanted() error {
	env := newVariables(s.environ)
	if env.get(mpsFolder) != "" {
		return fmt.Errorf("%s is set, which workers follow", mpsFolder)
	}
	if strings.Contains(env.get("CUDA_VISIBLE_DEVICES"), "MIG-") {
		return errors.New("parts of a GPU (MIG) each need a service of their own")
	}
	if c, err := net.Dial("unix", filepath.Join(s.usual, "control")); err == nil || errors.Is(err, os.ErrPermission) {
		if err == nil {
			_ = c.Close() // it was only a question
		}
		return errors.New("it runs already, and workers use it")
	}
	return nil
}

// newFolder makes the folder of the service's sockets.
func (s *mps) newFolder() (string, error) {
	temp, err := s.temp()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(temp, "mps")
}

func (s *mps) environment() []string {
	env := newVariables(s.environ)
	for _, v := range s.variables() {
		name, value, _ := strings.Cut(v, "=")
		env.set(name, value)
	}
	return env.list
}

// awaitServer returns when the service has started its server, which holds the
// GPUs, for this user.
func (s *mps) awaitServer() error {
	deadline := time.NewTimer(mpsPatience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := "it does not answer"
	begun := false
	for {
		if !begun {
			_, err := s.ask("start_server -uid " + strconv.Itoa(os.Getuid()))
			begun = err == nil
		}
		if begun {
			state, err := s.serverState()
			switch {
			case err != nil:
				last = err.Error()
			case strings.EqualFold(state, "active"):
				return nil
			default:
				last = "its server is " + state
			}
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("it ended: %w", s.process.Err())
		case <-deadline.C:
			return fmt.Errorf("%s after %v; %s may say more", last, mpsPatience, mpsProgram)
		case <-tick.C:
		}
	}
}

// serverState returns what the service says about its server, such as ACTIVE.
func (s *mps) serverState() (string, error) {
	list, err := s.ask("get_server_list")
	if err != nil {
		return "", err
	}
	servers := strings.Fields(list)
	if len(servers) == 0 {
		return "missing", nil
	}
	return s.ask("get_server_status " + servers[0])
}

// ask has the service do a command and returns its answer.
func (s *mps) ask(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), mpsPatience)
	defer cancel()
	c := exec.CommandContext(ctx, s.program)
	c.Env = s.environment()
	c.Stdin = strings.NewReader(command + "\n")
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// close ends the service. No worker may use it any more.
func (s *mps) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
	if s.process != nil {
		s.process.Stop()
	}
}
