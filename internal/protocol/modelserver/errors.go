package modelserver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"shoal/internal/modelstore"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
)

const jsonType = "application/json"

// An answered is an error with the id of its request.
type answered struct {
	fault *modelstore.Error
	id    string
}

// Error implements error.
func (a *answered) Error() string { return a.fault.Error() }

// Unwrap returns the error itself.
func (a *answered) Unwrap() error { return a.fault }

// Rejection implements what reject.ReasonOf asks for.
func (a *answered) Rejection() reject.Reason {
	if a.fault.Status == 404 {
		return reject.UnknownRoute
	}
	return reject.ReasonOf(a.fault.Cause)
}

func fault(status int, kind, text string) *modelstore.Error {
	return &modelstore.Error{Status: status, Type: kind, Text: text}
}

func errNoRoute() error {
	return fault(404, "ResourceNotFoundException", "Requested resource is not found, please refer to API document.")
}

func errMethod() error {
	return fault(405, "MethodNotAllowedException", "Requested method is not allowed, please refer to API document.")
}

func errBad(text string) error { return fault(400, "BadRequestException", text) }

func errInvalidHTTP() error { return errBad("Invalid HTTP message.") }

// engineErrors are the errors of the engine in this dialect.
var engineErrors = [status.CodeCount]struct {
	status int
	kind   string
}{
	status.Unknown:           {500, "InternalServerException"},
	status.Internal:          {500, "InternalServerException"},
	status.NotFound:          {404, "ModelNotFoundException"},
	status.InvalidArgument:   {400, "BadRequestException"},
	status.Unavailable:       {503, "ServiceUnavailableException"},
	status.Unsupported:       {501, "InternalServerException"},
	status.AlreadyExists:     {409, "ConflictStatusException"},
	status.Cancelled:         {400, "BadRequestException"},
	status.DeadlineExceeded:  {504, "RequestTimeoutException"},
	status.PermissionDenied:  {403, "InvalidKeyException"},
	status.ResourceExhausted: {503, "ServiceUnavailableException"},
}

// asError returns err in the words of this dialect.
func asError(err error) *modelstore.Error {
	if e, ok := errors.AsType[*modelstore.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*httpserver.Error](err); ok {
		switch e.Status {
		case 413:
			return fault(413, "", "")
		case 503, 408:
			return fault(e.Status, "ServiceUnavailableException", e.Text)
		}
		return fault(400, "BadRequestException", "Invalid HTTP message.")
	}
	if reject.ReasonOf(err) == reject.Malformed {
		return fault(400, "BadRequestException", "Invalid HTTP message.") // a header that cannot be read
	}
	c := engineErrors[status.CodeOf(err)]
	e := fault(c.status, c.kind, status.Public(err))
	e.Cause = err
	return e
}

// phrase returns the reason phrase of a status: empty for the usual one.
func phrase(code int) string {
	if http.StatusText(code) != "" {
		return ""
	}
	kind := "Unknown Status"
	switch code / 100 {
	case 4:
		kind = "Client Error"
	case 5:
		kind = "Server Error"
	case 2:
		kind = "Success"
	}
	return fmt.Sprintf("%s (%d)", kind, code)
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:36], b[10:16])
	return string(out[:])
}

// accessLine returns the line of the access log.
func accessLine(x *httpserver.Exchange, code int, took time.Duration) string {
	h := &x.Header
	return "/" + x.RemoteAddr().String() + ` "` + string(h.Method()) + " " + string(h.RequestURI()) + " " + string(h.Protocol()) + `" ` +
		strconv.Itoa(code) + " " + strconv.FormatInt(took.Milliseconds(), 10)
}
