//go:build !linux

package metrics

import "errors"

// machine is not supported here, as in Triton.
func machine() (machineState, error) { return machineState{}, errors.ErrUnsupported }
