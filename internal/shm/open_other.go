//go:build !linux

package shm

import (
	"errors"
	"os"
)

func open(string) (*os.File, uint64, error) { return nil, 0, errors.ErrUnsupported }

// A Memory is shared memory that this process made; on Linux only.
type Memory struct{ Key string }

// Create is for Linux only.
func Create(string, int) (*Memory, error) { return nil, errors.ErrUnsupported }

// Bytes returns nothing.
func (m *Memory) Bytes() []byte { return nil }

// Remove does nothing.
func (m *Memory) Remove() error { return nil }
