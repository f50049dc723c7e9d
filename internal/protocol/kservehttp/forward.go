package kservehttp

import (
	"bytes"
	"regexp"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
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
		if err := kserve.CheckForward(name); err != nil {
			return err
		}
		r.Params = append(r.Params, infer.Param{Name: name, Kind: infer.ParamString, String: string(bytes.TrimSpace(value))})
	}
	return nil
}
