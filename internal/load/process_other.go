//go:build !linux

package load

import (
	"errors"
	"fmt"
	"time"
)

var errNotLinux = fmt.Errorf("load: processes are watched on Linux only: %w", errors.ErrUnsupported)

func cpuTime(int) (time.Duration, error) { return 0, errNotLinux }
func residentBytes(int) (int64, error)   { return 0, errNotLinux }
func parentIDs() (map[int]int, error)    { return nil, errNotLinux }

// Listener is not supported on this system.
func Listener(uint16) (int, error) { return 0, errors.ErrUnsupported }
