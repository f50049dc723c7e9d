package kservehttp

import (
	"errors"
	"math"

	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// httpStatus is the status that each code has over HTTP. The first six are what
// clients of the original server expect; a request that was cancelled has
// nobody to read its answer.
var httpStatus = [status.CodeCount]int{
	status.Unknown:           400,
	status.Internal:          500,
	status.NotFound:          404,
	status.InvalidArgument:   400,
	status.Unavailable:       503,
	status.Unsupported:       501,
	status.AlreadyExists:     400,
	status.Cancelled:         400,
	status.DeadlineExceeded:  504,
	status.PermissionDenied:  403,
	status.ResourceExhausted: 503,
}

var (
	errNoRoute  = &httpserver.Error{Status: 404, Text: "Not Found", Reason: reject.UnknownRoute}
	errNoMethod = &httpserver.Error{Status: 405, Phrase: "Not Allowed", Text: "Method Not Allowed", Reason: reject.UnknownRoute}
	errExiting  = &httpserver.Error{Status: 503, Text: "Server exiting"}
	errNotReady = &httpserver.Error{Status: 400, Text: "Model version not ready"}
)

// AppendError implements httpserver.Dialect.
func (*handler) AppendError(b []byte, err error) ([]byte, httpserver.ErrorHead) {
	head, text := answer(err)
	return appendError(b, text), head
}

// answer returns the head and the text that err has for a client.
func answer(err error) (httpserver.ErrorHead, string) {
	if e, ok := errors.AsType[*httpserver.Error](err); ok {
		return httpserver.ErrorHead{Status: e.Status, Phrase: e.Phrase, Type: jsonType}, e.Text
	}
	code := httpStatus[status.CodeOf(err)]
	if _, ok := errors.AsType[generateFault](err); ok {
		code = 400
	}
	return httpserver.ErrorHead{Status: code, Type: jsonType}, status.Public(err)
}

// A generateFault is an error of a model that was asked in the short form. Its
// status is 400 whatever its code is, as in Triton.
type generateFault struct{ error }

func (f generateFault) Unwrap() error { return f.error }

// appendError appends the body of an answer that is an error.
func appendError(b []byte, text string) []byte {
	b = append(b, `{"error":`...)
	b = appendQuoted(b, text)
	return append(b, '}')
}

// A jsonKind is what a JSON value should have been, in the words of the
// original server.
type jsonKind string

const (
	kindString jsonKind = "attempt to access JSON non-string as string"
	kindBool   jsonKind = "attempt to access JSON non-boolean as boolean"
	kindInt    jsonKind = "attempt to access JSON non-signed-integer as signed-integer"
	kindUint   jsonKind = "attempt to access JSON non-unsigned-integer as unsigned-integer"
	kindDouble jsonKind = "attempt to access JSON non-number as double"
	kindArray  jsonKind = "attempt to access JSON non-array as array"
	kindObject jsonKind = "attempt to access JSON non-object as object"
)

// elementKind returns what the elements of JSON data must be.
func elementKind(t tensor.Type) jsonKind {
	switch t {
	case tensor.Bool:
		return kindBool
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return kindUint
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		return kindInt
	case tensor.Bytes:
		return kindString
	}
	return kindDouble
}

// Faults of the JSON and of its types are Internal because the original server
// answers them with 500 and clients' tests ask for that.

func errSyntax(f fault, at int) error {
	return status.Rejectf(reject.Malformed, status.Internal, "failed to parse the request JSON buffer: %s at %d", faultTexts[f], at)
}

func errMissing(member string) error {
	return status.Errorf(status.Internal, "Unable to parse '%s': attempt to access non-existing object member '%s'", member, member)
}

func errType(member string, kind jsonKind) error {
	return status.Errorf(status.Internal, "Unable to parse '%s': %s", member, kind)
}

func errJSONTooLarge(n, limit int64) error {
	return status.Rejectf(reject.TooLarge, status.InvalidArgument,
		"request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
}

func errShapeOverflow(input string, shape tensor.Shape) error {
	return status.Errorf(status.InvalidArgument,
		"invalid shape for input '%s': shape %s causes total element count to exceed maximum size of %d", input, shape, int64(math.MaxInt64))
}

func errRawTooLarge(n, limit int64) error {
	return status.Rejectf(reject.TooLarge, status.InvalidArgument,
		"Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
}

func errPackedTooLarge(n, limit int64) error {
	return status.Rejectf(reject.TooLarge, status.InvalidArgument,
		"compressed request body of %d bytes exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
}

func errRestricted(header string) error {
	return status.Rejectf(reject.Restricted, status.PermissionDenied, "This API is restricted, expecting header '%s'", header)
}
