package kservehttp

import (
	"bytes"
	"regexp"
	"strings"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// forwardHeaders gives the request a parameter for each header whose name, as
// the client wrote it, matches the pattern.
func forwardHeaders(r *infer.Request, raw []byte, pattern *regexp.Regexp) error {
	for line := range bytes.Lines(raw) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !pattern.Match(key) {
			continue
		}
		name := string(key)
		if isReserved(name) {
			return status.Errorf(status.InvalidArgument, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
		}
		r.Params = append(r.Params, infer.Param{Name: name, Kind: infer.ParamString, String: string(bytes.TrimSpace(value))})
	}
	return nil
}

// isReserved reports whether a parameter of that name means something to the
// server.
func isReserved(name string) bool {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output", "headers":
		return true
	}
	return strings.HasPrefix(name, "triton_")
}
