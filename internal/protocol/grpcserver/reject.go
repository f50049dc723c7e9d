package grpcserver

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/internal/reject"
)

// A rejection is the status of a call that the server rejects before a handler
// has it.
type rejection struct {
	st     *status.Status
	reason reject.Reason
}

func rejectf(reason reject.Reason, code codes.Code, format string, args ...any) *rejection {
	return &rejection{status.New(code, fmt.Sprintf(format, args...)), reason}
}

// Error implements error.
func (r *rejection) Error() string { return r.st.Err().Error() }

// GRPCStatus returns the status, for grpc's status.FromError.
func (r *rejection) GRPCStatus() *status.Status { return r.st }

// Rejection returns the reason, for reject.ReasonOf.
func (r *rejection) Rejection() reject.Reason { return r.reason }

// rejected reports a rejected call. Handlers report those that they reject
// themselves.
func (c *conn) rejected(reason reject.Reason, text string) {
	c.server.opt.Rejects.Request(reject.Request{Protocol: reject.GRPC, Client: c.nc.RemoteAddr(), Reason: reason, Text: text})
}

// closedBy reports the limit that ends the connection.
func (c *conn) closedBy(limit reject.Close, text string) {
	c.server.opt.Rejects.Closed(reject.GRPC, limit, c.nc.RemoteAddr(), text)
}

// refused reports a handshake that failed. A client that hangs up meanwhile,
// as probes of the port do, is not reported.
func (c *conn) refused(err error) {
	var ne net.Error
	var fault connError
	var insecure *tlsError
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		c.closedBy(reject.HandshakeTimeout, err.Error())
	case errors.Is(err, io.EOF):
	case errors.As(err, &insecure):
		c.rejected(reject.Unauthenticated, err.Error())
	case errors.As(err, &fault):
		c.faulty(fault)
	case errors.Is(err, errPreface):
		c.rejected(reject.Malformed, err.Error())
	}
}

// faulty reports a client's violation of HTTP/2. Violations of a limit are
// reported where they are found.
func (c *conn) faulty(fault connError) {
	if fault.code != http2.ErrCodeEnhanceYourCalm {
		c.rejected(reject.Malformed, fault.text)
	}
}

// A tlsError is why a connection could not be secured.
type tlsError struct{ err error }

// Error implements error.
func (e *tlsError) Error() string { return "TLS handshake: " + e.err.Error() }

// Unwrap returns the cause.
func (e *tlsError) Unwrap() error { return e.err }
