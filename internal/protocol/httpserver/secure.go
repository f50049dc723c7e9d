package httpserver

import (
	"crypto/tls"
	"errors"
	"io"
	"time"

	"shoal/internal/reject"
)

// secure does the handshake of a connection with TLS and reports whether it may
// be used. A client that hangs up meanwhile, as probes of the port do, is not
// reported.
func (c *conn) secure() bool {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	_ = t.SetDeadline(time.Now().Add(c.server.opt.HeaderTimeout)) // fails only on a closed connection, as the handshake will
	err := t.Handshake()
	switch {
	case err == nil:
		_ = t.SetDeadline(time.Time{})
		return true
	case isTimeout(err):
		c.closedBy(reject.HandshakeTimeout)
	case !errors.Is(err, io.EOF):
		c.server.opt.Rejects.Request(reject.Request{
			Protocol: reject.HTTP, Client: c.RemoteAddr(), Version: reject.NoVersion, Reason: reject.Unauthenticated, Text: "TLS handshake: " + err.Error(),
		})
		c.sayTLS(err)
	}
	return false
}

// sayTLS answers a client that speaks HTTP without TLS.
func (c *conn) sayTLS(err error) {
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || plain.Conn == nil {
		return
	}
	switch string(plain.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		x := Exchange{}
		x.answer.fail(c.server.dialect, errPlain)
		_, _ = plain.Conn.Write(append(x.appendHead(nil, false), x.answer.body...)) // the connection is closed in any case
	}
}

var errPlain = &Error{Status: 400, Text: "this port speaks HTTPS; use https:// in the URL", Reason: reject.Malformed}
