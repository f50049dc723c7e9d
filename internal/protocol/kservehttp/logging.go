package kservehttp

import (
	"cmp"
	"errors"
	"math"
	"strconv"

	"shoal/internal/logset"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// logging shows the settings of the log and, when it is posted to, changes them
// before.
func (h *handler) logging(x *httpserver.Exchange) error {
	control := h.engine.LogSettings()
	if control == nil {
		return errNoLogging
	}
	s := control.Settings()
	if string(x.Header.Method()) == "POST" {
		var l logChange
		err := h.jsonText(x, l.read)
		if err = cmp.Or(err, l.bad); err != nil {
			return err
		}
		if s, err = control.Update(l.Change); err != nil {
			if bad, ok := errors.AsType[logset.BadFormat](err); ok { // as Triton answers it
				return status.Rejectf(reject.BadInput, status.Unavailable, "invalid argument for --log_format, got: %s", bad.Format)
			}
			return err
		}
	}
	b := appendMember([]byte{'{'}, "log_file")
	b = appendQuoted(b, s.File)
	b = strconv.AppendBool(appendMember(b, "log_info"), s.Info)
	b = strconv.AppendBool(appendMember(b, "log_warning"), s.Warning)
	b = strconv.AppendBool(appendMember(b, "log_error"), s.Error)
	b = strconv.AppendUint(appendMember(b, "log_verbose_level"), uint64(s.Verbose), 10)
	b = appendQuoted(appendMember(b, "log_format"), s.Format)
	reply(x, append(b, '}'))
	return nil
}

var errNoLogging = status.Errorf(status.Unsupported, "log settings cannot be changed by clients of this server; set them on its command line")

// A logChange is a change of the log's settings as a client sends it.
type logChange struct {
	logset.Change
	bad error // the first fault
}

// read is a memberFunc. Members that it does not know are passed over, and so is
// null.
func (l *logChange) read(s *scanner, name string) bool {
	if s.peek() == 'n' {
		return s.skip()
	}
	switch name {
	case "log_info":
		return readBool(s, &l.Info, &l.bad)
	case "log_warning":
		return readBool(s, &l.Warning, &l.bad)
	case "log_error":
		return readBool(s, &l.Error, &l.bad)
	case "log_verbose_level":
		if c := s.peek(); c < '0' || c > '9' {
			l.bad = cmp.Or(l.bad, errJSONType("unsigned-integer"))
			return s.skip()
		}
		n, ok := s.number()
		if !ok {
			return false
		}
		u, ok := n.unsigned()
		if !ok || u > math.MaxUint32 {
			l.bad = cmp.Or(l.bad, errJSONType("unsigned-integer"))
			return true
		}
		v := uint32(u)
		l.Verbose = &v
		return true
	case "log_format":
		return readText(s, &l.Format, &l.bad)
	case "log_file":
		l.File = new(string) // whatever it is, it cannot be changed
		return s.skip()
	}
	return s.skip()
}

// readBool reads a boolean, or notes that the value is none.
func readBool(s *scanner, to **bool, bad *error) bool {
	v := s.peek() == 't'
	if !v && s.peek() != 'f' {
		*bad = cmp.Or(*bad, errJSONType("boolean"))
	}
	*to = &v
	return s.skip()
}

// readText reads a string, or notes that the value is none.
func readText(s *scanner, to **string, bad *error) bool {
	if s.peek() != '"' {
		*bad = cmp.Or(*bad, errJSONType("string"))
		return s.skip()
	}
	raw, escaped, ok := s.str()
	if !ok {
		return false
	}
	if escaped {
		raw = appendUnescaped(nil, raw)
	}
	v := string(raw)
	*to = &v
	return true
}

// errJSONType says that a member is not of its type, in Triton's words.
func errJSONType(want string) error {
	return status.Rejectf(reject.BadInput, status.Internal, "attempt to access JSON non-%s as %s", want, want)
}
