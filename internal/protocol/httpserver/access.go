package httpserver

import "shoal/internal/accesslog"

// Access returns the request's entry of the access log, for what only the dialect
// knows; nil when there is no such log.
func (x *Exchange) Access() *accesslog.Entry { return x.access }

// beginAccess begins the entry of a request whose head was read.
func (x *Exchange) beginAccess() {
	s := x.conn.server
	if s.opt.Access == nil {
		return
	}
	protocol := "HTTP/1.1"
	if x.IsHTTP10() {
		protocol = "HTTP/1.0"
	}
	x.access = s.opt.Access.Begin(protocol)
	x.access.Client = x.conn.RemoteAddr()
	accesslog.Ask(x.access, x.Header.Method(), x.Header.RequestURI())
}

// endAccess writes the entry.
func (x *Exchange) endAccess() {
	e := x.access
	if e == nil {
		return
	}
	s := x.conn.server
	if !e.HasModel() {
		e.Model(s.dialect.Model(x.Header.RequestURI()))
	}
	x.access = nil
	s.opt.Access.End(e)
}
