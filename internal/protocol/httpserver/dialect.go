package httpserver

import (
	"errors"
	"math"
	"strconv"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// A Dialect is a protocol over HTTP. Its methods are called from the goroutines
// of all connections.
type Dialect interface {
	// Serve answers a request: it fills in the answer, or returns the error for
	// the client.
	Serve(x *Exchange) error
	// AppendError appends the body for err to b and returns it with its head.
	// err is from Serve, or an *Error or *status.Error of the server.
	AppendError(b []byte, err error) ([]byte, ErrorHead)
	// Model returns the model and version in the target of a request, for the
	// counts of rejected requests; an empty name when there is none.
	Model(target []byte) (name string, version int64)
}

// An ErrorHead is the head of an answer that is an error.
type ErrorHead struct {
	Status int
	Phrase string // empty for the usual one
	Type   string // the Content-Type

	Headers []byte // other headers, as they are sent
	Close   bool   // the connection ends with it
}

// An Error is an error of the HTTP exchange rather than of its content, with
// its own status.
type Error struct {
	Status int
	Phrase string // the reason phrase, when it is not the usual one
	Text   string
	Accept string // for the header Accept-Encoding
	Reason reject.Reason
}

// Rejection returns the reason, for reject.ReasonOf.
func (e *Error) Rejection() reject.Reason { return e.Reason }

// Error implements error.
func (e *Error) Error() string { return e.Text }

// ErrEncoding is the error of a body whose compression is not supported.
var ErrEncoding = &Error{Status: 501, Text: "Unsupported compression type", Accept: "gzip, deflate", Reason: reject.Unsupported}

var (
	errVersion   = &Error{Status: 505, Text: "HTTP Version Not Supported", Reason: reject.Unsupported}
	errMalformed = &Error{Status: 400, Text: "the request's line or headers are no valid HTTP/1.1", Reason: reject.Malformed}
	errHeadSize  = &Error{Status: 431, Text: "the request's headers are too large; send fewer or raise --http-max-header-size", Reason: reject.TooLarge}
	errHeadSlow  = &Error{Status: 408, Text: "the request's headers did not arrive in time; send it faster or raise --http-header-timeout-secs", Reason: reject.Timeout}
	errBodySlow  = &Error{Status: 408, Text: "the request's body did not arrive in time; send it faster or raise --http-body-timeout-secs", Reason: reject.Timeout}
	errBodyCut   = &Error{Status: 400, Text: "the request's body is cut short or not in valid chunks", Reason: reject.Malformed}
)

// ErrBodyTooLarge is the error of a body of n bytes that exceeds limit.
func ErrBodyTooLarge(n, limit int64) error {
	return &Error{Status: 413, Reason: reject.TooLarge, Text: "request body of " + strconv.FormatInt(n, 10) +
		" bytes exceeds the maximum of " + strconv.FormatInt(limit, 10) + " bytes. Use --http-max-body-size to increase the limit."}
}

// ErrHeaderInt is the error of a header whose value is not a 32-bit integer.
func ErrHeaderInt(header, value string) error {
	if _, err := strconv.ParseInt(value, 10, 32); errors.Is(err, strconv.ErrRange) {
		return status.Rejectf(reject.Malformed, status.InvalidArgument, "Unable to parse %s, value is out of range [ %d, %d ], got: %s",
			header, math.MinInt32, math.MaxInt32, value)
	}
	return status.Rejectf(reject.Malformed, status.InvalidArgument, "Unable to parse %s, got: %s", header, value)
}

// publicText returns the client's text of err.
func publicText(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Text
	}
	return status.Public(err)
}

// HasCause reports whether err is an error of ours with a cause that the client
// does not see.
func HasCause(err error) bool {
	se, ok := errors.AsType[*status.Error](err)
	return ok && se.Cause != nil && se.Code == status.Internal
}
