package model

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// ParseJSON reads a configuration written as JSON, by the rules of protobuf. Fields
// that a configuration does not have are refused.
func ParseJSON(text []byte) (*modelpb.ModelConfig, error) {
	cfg := &modelpb.ModelConfig{}
	if err := protojson.Unmarshal(text, cfg); err != nil {
		// protobuf's texts begin with "proto:" and a space that is sometimes a
		// special one, so that nobody compares them.
		reason := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
		return nil, status.Errorf(status.InvalidArgument, "%s", reason)
	}
	return cfg, nil
}
