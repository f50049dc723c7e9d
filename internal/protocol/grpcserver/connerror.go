package grpcserver

import (
	"golang.org/x/net/http2"
)

// A connError ends a connection with a GOAWAY that says why.
type connError struct {
	code http2.ErrCode
	text string
}

func (e connError) Error() string { return "HTTP/2: " + e.code.String() + ": " + e.text }
