// Package status gives every error that can reach a client a code and a public
// text. Each protocol maps the codes to its own statuses in one table; nothing
// here knows a protocol.
package status

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"shoal/internal/reject"
)

// A Code is the kind of an error.
type Code uint8

// The codes. The zero value is Unknown, so that an error nobody classified is
// not mistaken for anything else.
const (
	Unknown Code = iota
	Internal
	NotFound
	InvalidArgument
	Unavailable
	Unsupported
	AlreadyExists
	Cancelled
	DeadlineExceeded
	PermissionDenied
	ResourceExhausted
	CodeCount // the number of codes, for tables and their tests
)

var names = [CodeCount]string{
	Unknown:           "Unknown",
	Internal:          "Internal",
	NotFound:          "Not found",
	InvalidArgument:   "Invalid argument",
	Unavailable:       "Unavailable",
	Unsupported:       "Unsupported",
	AlreadyExists:     "Already exists",
	Cancelled:         "Cancelled",
	DeadlineExceeded:  "Deadline exceeded",
	PermissionDenied:  "Permission denied",
	ResourceExhausted: "Resource exhausted",
}

// String returns the code as it appears within composed messages, such as
// "Invalid argument".
func (c Code) String() string {
	if c >= CodeCount {
		return names[Unknown]
	}
	return names[c]
}

// An Error has a code, a text for the client and optionally a private cause.
type Error struct {
	Code Code
	// Public is the client's text.
	Public string
	// Cause is for the log only; nil when Public is complete.
	Cause error
	// Log is the log's text when it is neither Public nor Public with Cause, such
	// as a traceback; usually empty.
	Log string
	// Reason is why the request was rejected, if it was: a check failed.
	Reason reject.Reason
}

// Rejection returns the reason, for reject.ReasonOf.
func (e *Error) Rejection() reject.Reason { return e.Reason }

// Error returns the public text and, for the log, the cause.
func (e *Error) Error() string {
	switch {
	case e.Log != "":
		return e.Log
	case e.Cause == nil:
		return e.Public
	}
	return e.Public + ": " + e.Cause.Error()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an error whose whole text is public.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Public: fmt.Sprintf(format, args...)}
}

// Wrap returns an error that shows msg to the client and keeps err for the log.
func Wrap(code Code, err error, msg string) error {
	return &Error{Code: code, Public: msg, Cause: err}
}

// Rejectf returns an error that rejects a request, with a text that is public.
func Rejectf(reason reject.Reason, code Code, format string, args ...any) error {
	return &Error{Code: code, Public: fmt.Sprintf(format, args...), Reason: reason}
}

// Reject returns err with that reason. If err has a reason already it keeps
// that one; nil stays nil.
func Reject(reason reject.Reason, err error) error {
	if err == nil || reject.ReasonOf(err) != reject.None {
		return err
	}
	if e, ok := err.(*Error); ok {
		rejected := *e
		rejected.Reason = reason
		return &rejected
	}
	return &Error{Code: CodeOf(err), Public: Public(err), Cause: err, Reason: reason}
}

// Prefix returns err with a prefix to its public text. Its code and its cause
// stay, so that the log does not repeat itself.
func Prefix(prefix string, err error) error { return around(prefix, err, "") }

// Suffix returns err with a suffix to its public text.
func Suffix(err error, suffix string) error { return around("", err, suffix) }

func around(prefix string, err error, suffix string) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Error() == err.Error() { // nothing was added around it
		changed := &Error{Code: e.Code, Public: prefix + e.Public + suffix, Cause: e.Cause, Reason: e.Reason}
		if e.Log != "" {
			changed.Log = prefix + e.Log + suffix
		}
		return changed
	}
	return Wrap(CodeOf(err), err, prefix+Public(err)+suffix)
}

// CodeOf returns err's code: that of the first Error in its chain, else that of
// a context's error, else Internal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// Public returns the client's text of err. An error without one is described
// without its details.
func Public(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Public
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the request's deadline passed"
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	}
	return "internal error; the server's log has the details"
}

// Panicked returns what becomes of a panic in a handler: an error that tells the
// client nothing of it.
func Panicked(p any) error {
	return Wrap(Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "internal error; the server's log has the details")
}
