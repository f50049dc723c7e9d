package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"

	"shoal/internal/cli/command"
	"shoal/internal/engine"
	"shoal/internal/protocol/session"
)

// sessionFlags are the flags of sessions over shared memory.
type sessionFlags struct {
	socket      string
	modeText    string
	userTexts   []string
	maxSessions int
	maxBytes    int64

	mode    fs.FileMode // of modeText, by check
	users   []int       // of userTexts, by check
	anyUser bool

	server *session.Server // nil when there is none; no flag
}

func (f *sessionFlags) add(g *command.Group) {
	g.Text(&f.socket, "session-socket", "", "`path` of the Unix socket for sessions: processes on this machine that pass tensors in shared memory (docs/sessions.md); off when empty")
	g.Text(&f.modeText, "session-socket-mode", "0600", "permissions of that socket, as an octal `number`")
	g.Texts(&f.userTexts, "session-users", "`user` that may open sessions, as a number, besides root and the server's own; any: all that the permissions of the socket allow")
	g.Number(&f.maxSessions, "session-max-sessions", 1024, "most `sessions` at once; each holds a file open")
	g.Size(&f.maxBytes, "session-max-bytes", 1<<30, "most shared memory of one session, in `bytes`; all sessions together are limited by --max-inflight-bytes")
}

// check checks the values.
func (f *sessionFlags) check() error {
	var errs []error
	mode, err := strconv.ParseUint(f.modeText, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		errs = append(errs, fmt.Errorf("--session-socket-mode is %q, want an octal number such as 0660", f.modeText))
	}
	f.mode, f.users = fs.FileMode(mode), nil
	for _, text := range f.userTexts {
		if text == "any" {
			f.anyUser = true
			continue
		}
		user, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			errs = append(errs, fmt.Errorf("--session-users is %q, want the number of a user or any", text))
		}
		f.users = append(f.users, int(user))
	}
	return errors.Join(errs...)
}

func (f *sessionFlags) endpoint() endpoint {
	return endpoint{protocol: "session", address: unixPrefix + f.socket, addrFlag: "--session-socket", network: "unixpacket", mode: f.mode}
}

func (f *serveFlags) startSessions(l *life, e *engine.Engine, ln net.Listener) (service, error) {
	s := session.Start(session.Options{
		MaxSessions: f.sessions.maxSessions, MaxBytes: f.sessions.maxBytes, Users: f.sessions.users, AnyUser: f.sessions.anyUser,
		Memory: l.memory.Budget(), Rejects: f.rejects, Log: l.log,
	}, e, ln.(*net.UnixListener))
	f.sessions.server = s
	return service{"session", s.Close, s.InFlight}, nil
}
