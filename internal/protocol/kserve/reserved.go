package kserve

import (
	"slices"
	"strings"

	"shoal/internal/status"
)

// ReservedPrefix begins the names of parameters that are the server's own.
const ReservedPrefix = "triton_"

var reserved = []string{"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}

// CheckForward fails for a header that cannot be forwarded to the model, since a
// parameter of that name means something to the server.
func CheckForward(name string) error {
	if slices.Contains(reserved, name) || strings.HasPrefix(name, ReservedPrefix) {
		return status.Errorf(status.InvalidArgument, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
	}
	return nil
}
