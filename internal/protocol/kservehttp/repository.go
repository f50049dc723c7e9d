package kservehttp

import (
	"cmp"
	"strconv"
	"strings"

	"shoal/internal/engine"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// index answers with the models that are known and their states.
func (h *handler) index(x *httpserver.Exchange) error {
	readyOnly := false
	var bad error
	err := h.jsonBody(x, func(s *scanner, name string) bool {
		if name == "ready" {
			readyOnly = s.peek() == 't'
			if !readyOnly && s.peek() != 'f' {
				bad = status.Rejectf(reject.BadInput, status.InvalidArgument, "Invalid value for 'ready': expected a boolean")
			}
		}
		return s.skip()
	})
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	b := append([]byte(nil), '[')
	for i, e := range h.engine.Index(readyOnly) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendIndexEntry(b, e)
	}
	reply(x, append(b, ']'))
	return nil
}

func appendIndexEntry(b []byte, e engine.IndexEntry) []byte {
	b = append(b, '{')
	b = appendMember(b, "name")
	b = appendQuoted(b, e.Name)
	if e.Version != engine.NoVersion {
		b = appendMember(b, "version")
		b = append(b, '"')
		b = strconv.AppendInt(b, e.Version, 10)
		b = append(b, '"')
	}
	if e.State != "" {
		b = appendMember(b, "state")
		b = appendQuoted(b, string(e.State))
	}
	if e.Reason != "" {
		b = appendMember(b, "reason")
		b = appendQuoted(b, e.Reason)
	}
	return append(b, '}')
}

// load asks the engine for a model.
func (h *handler) load(x *httpserver.Exchange, rt route) error {
	if rt.repository {
		return errRepositoryName
	}
	var o override
	err := h.jsonBody(x, func(s *scanner, name string) bool {
		if name == "parameters" && s.peek() != '{' {
			o.fault(status.Internal, "attempt to get members for non-object")
		}
		return parameters(o.read)(s, name)
	})
	if err = cmp.Or(err, o.bad); err != nil {
		return err
	}
	x.SetType(jsonType)
	return h.engine.Load(x.Context(), strings.Clone(rt.model), o.Override) // the engine keeps the name
}

// unload asks the engine to let a model go.
func (h *handler) unload(x *httpserver.Exchange, rt route) error {
	if rt.repository {
		return errRepositoryName
	}
	dependents := false
	err := h.jsonBody(x, parameters(func(s *scanner, name string) bool {
		if name == "unload_dependents" {
			dependents = s.peek() == 't'
		}
		return s.skip()
	}))
	if err != nil {
		return err
	}
	x.SetType(jsonType)
	return h.engine.Unload(x.Context(), rt.model, dependents)
}

var errRepositoryName = status.Errorf(status.Unsupported, "'repository_name' specification is not supported")

// A memberFunc is called with the name of a member and the scanner at its
// value, which it passes over.
type memberFunc func(s *scanner, name string) bool

// parameters returns a memberFunc that calls f for the members of the member
// parameters.
func parameters(f memberFunc) memberFunc {
	return func(s *scanner, name string) bool {
		if name != "parameters" {
			return s.skip()
		}
		return s.members(f)
	}
}

// jsonBody reads a body that is empty or a JSON text, and calls f for each
// member of that. The error is a fault in the JSON, or of the body.
func (h *handler) jsonBody(x *httpserver.Exchange, f memberFunc) error {
	p, err := x.Receive(min(h.maxInput, h.server.MaxBodySize), errJSONTooLarge)
	if err != nil {
		return err
	}
	defer p.Release()
	if len(p.B) == 0 {
		return nil
	}
	return scanMembers(p.B, f)
}

// jsonText is jsonBody for a body that must not be empty.
func (h *handler) jsonText(x *httpserver.Exchange, f memberFunc) error {
	p, err := x.Receive(min(h.maxInput, h.server.MaxBodySize), errJSONTooLarge)
	if err != nil {
		return err
	}
	defer p.Release()
	return scanMembers(p.B, f)
}

// scanMembers reads a JSON text and calls f for each of its members.
func scanMembers(text []byte, f memberFunc) error {
	var s scanner
	s.reset(text)
	if !s.begin() || !s.members(f) || !s.end() {
		return errSyntax(s.fault, s.at)
	}
	return nil
}

// members calls f for each member of the object here. Another value is passed
// over.
func (s *scanner) members(f memberFunc) bool {
	if s.peek() != '{' {
		return s.skip()
	}
	if !s.enter('}') {
		return true
	}
	for {
		raw, escaped, ok := s.member()
		if !ok {
			return false
		}
		name := string(raw)
		if escaped {
			name = string(appendUnescaped(nil, raw))
		}
		if !f(s, name) {
			return false
		}
		if more, ok := s.next('}', faultObject); !more {
			return ok
		}
	}
}
