package kservegrpc

import (
	"google.golang.org/grpc/codes"

	"shoal/internal/accesslog"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/status"
)

// access returns a new entry of the access log for a request of the stream; nil when
// there is no such log.
func (st *inferStream) access() *accesslog.Entry {
	if st.server.opt.Server.Access == nil {
		return nil
	}
	return grpcserver.NewAccess(st.ctx)
}

// logAccess writes the entry of a request whose answers, of that many bytes, are with
// the stream's writer.
func (st *inferStream) logAccess(m *message, bytes int64, err error) {
	e := m.access
	if e == nil {
		return
	}
	m.access = nil
	e.Ran(m.req)
	e.Bytes = bytes
	code := codes.OK
	if err != nil {
		code = grpcCodes[status.CodeOf(err)]
	}
	grpcserver.SetAccessCode(e, code)
	st.server.opt.Server.Access.End(e)
}
