package kservegrpc

import (
	"errors"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Errors of a message on the wire. grpc adds its own text and the code.
var (
	errWire = errors.New("the message is not valid protobuf")
	errUTF8 = errors.New("a string in the message is not valid UTF-8")
)

// nextField reads a field's number and type and returns the rest.
func nextField(b []byte) (protowire.Number, protowire.Type, []byte, error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num > protowire.MaxValidNumber {
		return 0, 0, nil, errWire
	}
	return num, typ, b[n:], nil
}

// skipValue skips the value of an unknown field.
func skipValue(num protowire.Number, typ protowire.Type, b []byte) ([]byte, error) {
	n := protowire.ConsumeFieldValue(num, typ, b)
	if n < 0 {
		return nil, errWire
	}
	return b[n:], nil
}

// takeBytes reads a length and that many bytes, and returns the rest.
func takeBytes(b []byte) (v, rest []byte, err error) {
	v, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, nil, errWire
	}
	return v, b[n:], nil
}

// takeString is takeBytes for a string, which must be UTF-8.
func takeString(b []byte) (v string, rest []byte, err error) {
	raw, rest, err := takeBytes(b)
	if err != nil {
		return "", nil, err
	}
	v, err = text(raw)
	return v, rest, err
}

// text returns b as a string that shares its memory.
func text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errUTF8
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), nil
}

// takeVarint reads a number and returns the rest.
func takeVarint(b []byte) (uint64, []byte, error) {
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, nil, errWire
	}
	return v, b[n:], nil
}
