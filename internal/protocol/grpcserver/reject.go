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

// A rejection is the status of a call whose request the server turns away
// before a handler has it.
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

// rejected reports a call that was turned away. Handlers report those that they
// turn away themselves.
func (c *conn) rejected(reason reject.Reason, text string) {
	c.server.opt.Rejects.Request(reject.Request{Protocol: reject.GRPC, Client: c.nc.RemoteAddr(), Reason: reason, Text: text})
}

// closedBy reports the limit that ends the connection.
func (c *conn) closedBy(limit reject.Close, text string) {
	c.server.opt.Rejects.Closed(reject.GRPC, limit, c.nc.RemoteAddr(), text)
}

// failed reports why the server ends a connection, when a limit that was
// reported is not the reason. A client that hangs up is none.
func (c *conn) failed(err error) {
	var fault connError
	switch {
	case errors.As(err, &fault):
		if fault.code != http2.ErrCodeEnhanceYourCalm {
			c.rejected(reject.Malformed, fault.text)
		}
	case errors.Is(err, errPreface):
		c.rejected(reject.Malformed, err.Error())
	}
}

// unsecured reports why a handshake failed.
func (c *conn) unsecured(err error) {
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		c.closedBy(reject.HandshakeTimeout, err.Error())
	case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
	default:
		c.rejected(reject.Unauthenticated, err.Error())
	}
}
