package kservehttp

import (
	"encoding/base64"
	"strings"

	"shoal/internal/engine"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// An override is what a client sends to load a model with: a configuration, and
// files in base64.
type override struct {
	engine.Override
	bad error // the first fault
}

// read is a memberFunc for the parameters of a load.
func (o *override) read(s *scanner, name string) bool {
	path, isFile := strings.CutPrefix(name, "file:")
	if s.peek() != '"' {
		o.fault(status.Internal, "attempt to access JSON non-string as string")
		return s.skip()
	}
	if name != "config" && !isFile {
		o.fault(status.Internal, "unexpected error on creating Triton parameter")
		return s.skip()
	}
	raw, escaped, ok := s.str()
	if !ok {
		return false
	}
	if escaped {
		raw = appendUnescaped(nil, raw)
	}
	if !isFile {
		o.Config = string(raw)
		return true
	}
	content, err := base64.StdEncoding.DecodeString(string(raw))
	if err != nil {
		o.fault(status.InvalidArgument, "load parameter '%s' is not base64: %v", name, err)
	}
	if o.Files == nil {
		o.Files = make(map[string][]byte)
	}
	o.Files[path] = content
	return true
}

// fault notes what is wrong with the parameters.
func (o *override) fault(code status.Code, format string, args ...any) {
	if o.bad == nil {
		o.bad = status.Rejectf(reject.BadInput, code, format, args...)
	}
}
