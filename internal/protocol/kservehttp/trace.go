package kservehttp

import (
	"cmp"
	"time"

	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// traceSetting shows the trace settings of the server or a model and, when it is
// posted to, changes them before.
func (h *handler) traceSetting(x *httpserver.Exchange, rt route) error {
	if !h.engine.Traceable(rt.model) {
		return status.Rejectf(reject.UnknownModel, status.InvalidArgument, "Request for unknown model : %s", rt.model)
	}
	tracer := h.engine.Tracer()
	now := tracer.Settings(rt.model)
	if string(x.Header.Method()) == "POST" {
		var t traceChange
		err := h.jsonText(x, t.read)
		if err = cmp.Or(err, t.bad); err != nil {
			return err
		}
		if now, err = tracer.Update(string([]byte(rt.model)), t.values); err != nil { // the name is kept
			return status.Reject(reject.BadInput, err)
		}
	}
	b := []byte{'{'}
	for _, setting := range now {
		b = appendMember(b, setting.Name)
		if setting.Name != "trace_level" {
			b = appendQuoted(b, setting.Value[0])
			continue
		}
		b = append(b, '[')
		for i, level := range setting.Value {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, level)
		}
		b = append(b, ']')
	}
	reply(x, append(b, '}'))
	return nil
}

// trace begins to trace a request to a model, if it is one of those that are traced.
func (h *handler) trace(x *httpserver.Exchange, a *inferAnswer, model string) {
	tracer := h.engine.Tracer()
	var caller trace.Parent
	if tracer.Propagates() {
		caller = trace.ParseParent(string(x.Header.Peek("Traceparent")), string(x.Header.Peek("Tracestate")))
	}
	a.trace = tracer.Sample(model, trace.HTTP, caller, time.Now())
	a.request.Trace = a.trace.First()
}

// A traceChange is a change of trace settings as a client sends it.
type traceChange struct {
	values map[string][]string
	bad    error // the first fault
}

// read is a memberFunc: values are strings, the level is a list of them, and null
// puts a setting back.
func (t *traceChange) read(s *scanner, name string) bool {
	if t.values == nil {
		t.values = make(map[string][]string)
	}
	t.values[name] = nil
	switch {
	case s.peek() == 'n':
		return s.skip()
	case name == "trace_file": // whatever it is, it cannot be changed
		return s.skip()
	case name == "trace_level" && s.peek() == '[':
		return t.list(s, name)
	case name == "trace_level":
		t.bad = cmp.Or(t.bad, errJSONType("array"))
		return s.skip()
	}
	var text *string
	ok := readText(s, &text, &t.bad)
	if text != nil {
		t.values[name] = []string{*text}
	}
	return ok
}

// list reads a list of strings.
func (t *traceChange) list(s *scanner, name string) bool {
	if !s.enter(']') {
		return true
	}
	for {
		var text *string
		if !readText(s, &text, &t.bad) {
			return false
		}
		if text != nil {
			t.values[name] = append(t.values[name], *text)
		}
		if more, ok := s.next(']', faultArray); !more {
			return ok
		}
	}
}
