package kservehttp

import (
	"bytes"
	"regexp"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
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
		if kserve.Reserved(name) {
			return status.Errorf(status.InvalidArgument, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
		}
		r.Params = append(r.Params, infer.Param{Name: name, Kind: infer.ParamString, String: string(bytes.TrimSpace(value))})
	}
	return nil
}
