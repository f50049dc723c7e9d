package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A StatusError is an answer that is an HTTP error.
type StatusError struct {
	Code int
	Body []byte // what the server said
}

func (e *StatusError) Error() string {
	if len(e.Body) == 0 {
		return "the server answered HTTP " + strconv.Itoa(e.Code)
	}
	return fmt.Sprintf("the server answered HTTP %d: %.300s", e.Code, e.Body)
}

// errProtocol is wrapped by errors about an answer that this package cannot
// parse.
var errProtocol = errors.New("unusable HTTP answer")

// errConnect is wrapped by errors of connecting.
var errConnect = errors.New("connect")

// kindOf classifies an error into one of a few kinds, so that a result has one
// line for each kind rather than for each address and byte count.
func kindOf(err error) string {
	var answer *StatusError
	var network net.Error
	switch {
	case errors.As(err, &answer):
		return "http " + strconv.Itoa(answer.Code)
	case errors.Is(err, errConnect):
		return "connect"
	case errors.Is(err, errProtocol):
		return "protocol"
	case errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return "cancelled"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "closed by server"
	}
	switch code := status.Code(err); code {
	case codes.Unknown:
		return "other"
	case codes.Canceled:
		return "cancelled"
	default:
		return "grpc " + code.String()
	}
}

// Kind classifies an error of an exchange; see [Result.Errors].
func Kind(err error) string { return kindOf(err) }
