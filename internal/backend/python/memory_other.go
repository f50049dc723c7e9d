//go:build !linux

package python

import (
	"errors"
	"os"
)

// errSystem is why there are no workers here: the shared memory needs features
// that only Linux has.
var errSystem = errors.New("Python models need Linux")

func newMemory(string) (*memory, error) { return nil, errSystem }

func socketpair() (ours, theirs *os.File, err error) { return nil, nil, errSystem }

func (l *link) sendFile([]byte, int) error { return errSystem }

func (m *memory) extend(int) error { return errSystem }

func (m *memory) mapAt(int64, int) ([]byte, error) { return nil, errSystem }

func unmap([]byte) {}

func (m *memory) punch(int64, int64) {}

func (m *memory) send(*slot, int) (uint64, error) { return 0, errSystem }

func (m *memory) answered() error { return errSystem }

func (m *memory) wait() error { return errSystem }

func (m *memory) wake() {}

func (m *memory) close() {}

func wakeWord([]byte, uint32) {}
