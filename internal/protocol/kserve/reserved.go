package kserve

import (
	"slices"
	"strings"
)

// ReservedPrefix begins the names of parameters that are the server's own.
const ReservedPrefix = "triton_"

var reserved = []string{"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}

// Reserved reports whether a parameter of that name means something to the
// server, so that a header of that name cannot be forwarded to the model.
func Reserved(name string) bool {
	return slices.Contains(reserved, name) || strings.HasPrefix(name, ReservedPrefix)
}
