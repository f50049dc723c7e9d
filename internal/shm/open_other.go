//go:build !linux

package shm

import (
	"errors"
	"os"
)

func open(string) (*os.File, uint64, error) { return nil, 0, errors.ErrUnsupported }

// An Own is shared memory that this process made; on Linux only.
type Own struct{ Key string }

// Create is for Linux only.
func Create(string, int) (*Own, error) { return nil, errors.ErrUnsupported }

// Bytes returns nothing.
func (m *Own) Bytes() []byte { return nil }

// Remove does nothing.
func (m *Own) Remove() error { return nil }
