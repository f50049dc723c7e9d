package python

import (
	"encoding/binary"
	"sync"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// Large rows that a session's client has written into memory of its own are not
// copied: the worker gets the file, once, and maps the rows into their places in
// the slot while the batch runs. It can only be done with whole pages, and only for
// types that no library uses as an index: the client can change them meanwhile.
const (
	minLent  = 128 << 10 // bytes of an input; smaller ones are copied sooner
	maxFiles = 256       // that a worker has: it may have few descriptors
)

// lent are the files that a worker has.
type lent struct {
	mu    sync.Mutex // protects the fields below
	files map[uint64]*infer.Shared
	over  bool // the worker is gone
}

// isLendable reports whether inputs of a type may be mapped.
func isLendable(t tensor.Type) bool {
	return t == tensor.FP16 || t == tensor.FP32 || t == tensor.FP64 || t == tensor.BF16
}

// lend gives the worker the file that has the data, unless it has it, and reports
// whether the worker can map the data to that offset of a slot.
func (l *link) lend(d infer.Data, offset int) bool {
	s := d.Shared
	if s == nil || len(d.Rest) > 0 || len(d.First) < minLent || len(d.First)%pageSize != 0 || offset%pageSize != 0 || s.Offset(d.First)%pageSize != 0 {
		return false
	}
	l.lent.mu.Lock()
	defer l.lent.mu.Unlock()
	if _, ok := l.lent.files[s.ID]; ok {
		return true
	}
	if l.lent.over || len(l.lent.files) == maxFiles || l.sendFile(binary.LittleEndian.AppendUint64(nil, s.ID), s.FD) != nil {
		return false
	}
	if !s.Use(l, func() { go l.takeBack(s) }) { // a session's end must not wait for a worker that hangs
		l.drop(s)
		return false
	}
	if l.lent.files == nil {
		l.lent.files = make(map[uint64]*infer.Shared)
	}
	l.lent.files[s.ID] = s
	return true
}

// takeBack has the worker close a file whose client is gone.
func (l *link) takeBack(s *infer.Shared) {
	l.lent.mu.Lock()
	defer l.lent.mu.Unlock()
	delete(l.lent.files, s.ID)
	l.drop(s)
}

func (l *link) drop(s *infer.Shared) {
	_ = l.send(frameDrop, binary.LittleEndian.AppendUint64(nil, s.ID)) // a worker that is gone has closed it
}

// endLent forgets the files of a worker that is gone.
func (l *link) endLent() {
	l.lent.mu.Lock()
	defer l.lent.mu.Unlock()
	l.lent.over = true
	for _, s := range l.lent.files {
		s.Leave(l)
	}
	l.lent.files = nil
}
