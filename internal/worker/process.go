package worker

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// drainTime is how long the output of a child that has ended is still read when
// a process outside its group holds the pipe open. The child's own output is in
// the pipe by then.
const drainTime = 200 * time.Millisecond

// A Process is a running child. It needs no Close once Done is closed: neither
// a zombie nor an open file is left then.
type Process struct {
	cmd      Command
	pid      int
	lifeline lifeline
	output   *output
	oom      oomCounter
	done     chan struct{} // closed when exit is set and all resources are freed

	mu     sync.Mutex // protects the fields below
	reaped bool       // the pid may belong to another process
	why    error      // why we killed it
	exit   *Exit
}

// Start starts the child. It returns as soon as the program runs, or why it
// does not.
func Start(cmd Command) (*Process, error) {
	if cmd.Grace == 0 {
		cmd.Grace = DefaultGrace
	}
	p := &Process{cmd: cmd, done: make(chan struct{}), oom: newOOMCounter()}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// live starts the child and waits for its end, on one thread: PR_SET_PDEATHSIG
// refers to the thread that started the child, so that thread must not end
// before the child.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := p.begin()
	started <- err
	if err != nil {
		return
	}
	awaitExit(p.pid) // the child is not reaped yet, so its pid and group are still ours
	p.end(c)
}

// begin starts the child with its pipes and ties it to the lifeline.
func (p *Process) begin() (*exec.Cmd, error) {
	line, err := newLifeline()
	if err != nil {
		return nil, err
	}
	out, err := newOutput(p.cmd)
	if err != nil {
		line.close()
		return nil, err
	}
	c := exec.Command(p.cmd.Path, p.cmd.Args...)
	c.Dir = p.cmd.Dir
	c.SysProcAttr = processAttributes()
	c.Env = append(p.cmd.Env[:len(p.cmd.Env):len(p.cmd.Env)], LifelineEnv+"="+strconv.Itoa(3+len(p.cmd.Files)))
	c.ExtraFiles = append(p.cmd.Files[:len(p.cmd.Files):len(p.cmd.Files)], line.read)
	c.Stdout, c.Stderr = out.childStdout, out.childStderr
	err = c.Start()
	if err == nil {
		line.tie(c.Process.Pid) // before anybody can use the child
	}
	out.started(err == nil)
	if err != nil {
		line.close()
		return nil, err
	}
	p.pid, p.output, p.lifeline = c.Process.Pid, out, line
	return c, nil
}

// end frees everything after the child has ended.
func (p *Process) end(c *exec.Cmd) {
	signalGroup(p.pid, syscall.SIGKILL) // processes that the child started end with it
	p.mu.Lock()
	_ = c.Wait() // the state has more information than the error
	p.reaped = true
	p.mu.Unlock()
	p.lifeline.close()
	p.output.drain(drainTime)

	exit := describe(c.ProcessState)
	exit.Model, exit.Name = p.cmd.Model, p.cmd.Name
	exit.Stderr = p.output.tail.lines()
	p.mu.Lock()
	if exit.asTold() {
		exit.Why = p.why
	}
	exit.OutOfMemory = exit.Why == nil && exit.Signal == syscall.SIGKILL && p.oom.rose()
	p.exit = exit
	p.mu.Unlock()
	close(p.done)
	p.output.logger.Wait()
}

// PID returns the child's process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the child is gone and all of its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns an *Exit with how the child ended, nil while it runs.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		return nil
	}
	return p.exit
}

// Kill ends the child and its group at once and keeps why as the reason. It does
// not wait; the first reason stays.
func (p *Process) Kill(why error) {
	if why == nil {
		why = errors.New("it was told to end")
	}
	p.mu.Lock()
	if p.why == nil && !p.reaped {
		p.why = why
	}
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// Stop ends the child: it asks, sends SIGTERM, and kills, each after the grace
// period of the step before. It returns when the child is gone.
func (p *Process) Stop() {
	p.mu.Lock()
	if p.why == nil && !p.reaped {
		p.why = errors.New("the server stopped it")
	}
	p.mu.Unlock()
	if p.cmd.Ask != nil {
		p.cmd.Ask()
		if goneWithin(p.done, p.cmd.Grace) {
			return
		}
	}
	p.terminate()
	if goneWithin(p.done, p.cmd.Grace) {
		return
	}
	p.cmd.Log.Warn("worker does not end and is killed", "model", p.cmd.Model, "instance", p.cmd.Name, "grace", p.cmd.Grace)
	p.signal(syscall.SIGKILL)
	<-p.done
}

// terminate sends SIGTERM to the child only: the child should end its own
// processes, which are otherwise killed after it.
func (p *Process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(p.pid, syscall.SIGTERM)
	}
}

// signal sends a signal to the child's group, unless the child has been reaped.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		signalGroup(p.pid, sig)
	}
}

// signalGroup sends a signal to every process of a group. The group may be gone.
func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }
