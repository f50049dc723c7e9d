//go:build !linux

package peer

import (
	"errors"
	"os/exec"
)

func startOn(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) > 0 {
		return errors.ErrUnsupported
	}
	return cmd.Start()
}

// PinSelf is for Linux only.
func PinSelf([]int) error { return errors.ErrUnsupported }
