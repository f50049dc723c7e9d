package grpcserver

import (
	"context"
	"strconv"

	"google.golang.org/grpc/codes"

	"shoal/internal/accesslog"
)

// Access returns the entry of the access log of the call with that context, for what
// only its handler knows; nil when there is no such log.
func Access(ctx context.Context) *accesslog.Entry {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.access
	}
	return nil
}

// NewAccess returns an entry like that of the call with this context, for one
// message of a stream; nil when there is no access log. Whoever gets it ends it.
func NewAccess(ctx context.Context) *accesslog.Entry {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.conn.server.opt.Access != nil {
		return c.newAccess()
	}
	return nil
}

func (c *call) newAccess() *accesslog.Entry { return c.conn.newAccess(c.req, 200) }

func (c *conn) newAccess(r *request, status int) *accesslog.Entry {
	e := c.server.opt.Access.Begin("HTTP/2.0")
	e.Client, e.Status = c.peer.Addr, status
	accesslog.Ask(e, "POST", r.path)
	return e
}

// logRefusal writes the entry of a call that never gets to a runner.
func (c *conn) logRefusal(r *request, re *refusal) {
	if c.server.opt.Access == nil {
		return
	}
	e := c.newAccess(r, re.http)
	SetAccessCode(e, re.status.Code())
	c.server.opt.Access.End(e)
}

// SetAccessCode sets the status of an entry.
func SetAccessCode(e *accesslog.Entry, code codes.Code) { e.Code = codeName(code) }

// codeNames are the codes as gRPC writes them.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

func codeName(c codes.Code) string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "CODE_" + strconv.Itoa(int(c))
}
