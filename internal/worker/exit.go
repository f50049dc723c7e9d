package worker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"shoal/internal/status"
)

// An Exit is how a child ended. It is an error, whose text is for the log.
type Exit struct {
	Model, Name string
	Code        int            // the exit code, when Signal is zero
	Signal      syscall.Signal // what killed it, or zero
	OutOfMemory bool           // the kernel killed it because memory ran out, as far as we can tell
	Why         error          // why the server ended it, or nil
	Stderr      []string       // the last lines of its standard error
}

func describe(s *os.ProcessState) *Exit {
	e := &Exit{Code: s.ExitCode()}
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	return e
}

// asTold reports whether the child ended the way we ended it. Otherwise it
// ended by itself, shortly before.
func (e *Exit) asTold() bool {
	return e.Signal == syscall.SIGKILL || e.Signal == syscall.SIGTERM || (e.Signal == 0 && e.Code == 0)
}

// Reason describes in a few words how the child ended, such as "killed by
// signal 9 (SIGKILL)" or "ended with exit code 3".
func (e *Exit) Reason() string {
	switch {
	case e.Why != nil:
		return "stopped by the server: " + e.Why.Error()
	case e.OutOfMemory:
		return "killed by signal 9 (SIGKILL): the machine or the container ran out of memory"
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), signalName(e.Signal))
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// LastLine returns the last non-empty line of standard error, or "".
func (e *Exit) LastLine() string {
	for i := len(e.Stderr) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(e.Stderr[i]); line != "" {
			return line
		}
	}
	return ""
}

// Error names the worker and the reason, and gives the last lines of standard
// error.
func (e *Exit) Error() string {
	s := fmt.Sprintf("model %q: worker %s: %s", e.Model, e.Name, e.Reason())
	if len(e.Stderr) > 0 {
		s += "; the end of its stderr:\n" + strings.Join(e.Stderr, "\n")
	}
	return s
}

// Lost returns the error for the clients whose batch the worker was running
// when it ended: the reason and the last line of standard error. It does not
// wrap e, so that e is logged once and not for each client.
func (e *Exit) Lost() error {
	return status.Errorf(status.Internal, "model %q: worker %s ended while it ran this batch: %s", e.Model, e.Name, e.brief())
}

// brief returns in one line, for clients, why a worker is not there: how it
// ended, or the first line of its failed start.
func brief(err error) string {
	var public *status.Error
	var exit *Exit
	switch {
	case errors.As(err, &public):
		first, _, _ := strings.Cut(public.Public, "\n")
		return first
	case errors.As(err, &exit):
		return exit.brief()
	}
	return err.Error()
}

// brief returns the reason and the last line of standard error.
func (e *Exit) brief() string {
	line := e.LastLine()
	if line == "" || e.Why != nil {
		return e.Reason()
	}
	return e.Reason() + "; the last line of its stderr: " + line
}

// signalName returns a signal's name, such as "SIGSEGV".
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "unknown"
}
