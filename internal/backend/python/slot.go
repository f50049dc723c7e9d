package python

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// A slot is the place of one batch in the shared memory. It holds the outputs
// until the last response made of them is released; meanwhile the worker runs on
// with another.
type slot struct {
	mem    *memory
	number int
	in     []byte // the half that we write
	out    []byte // the half that the worker writes
	refs   atomic.Int32
	kept   bool // the handler still reads our half: the slot must not be used again

	// used is how much of each half the batch has written.
	usedIn, usedOut int

	described []byte // the table of inputs that lies in our half

	table []byte // a copy of the result's table
	text  []byte // copies of the result's strings
}

const (
	// maxIdle is how many idle slots an instance keeps.
	maxIdle = 4
	// keptSize is how much memory an idle slot keeps in each half. A larger
	// batch is a rare one; its memory goes back when it is released.
	keptSize = 256 << 20
)

// take returns a slot. It never waits: what bounds the slots is the requests in
// flight, each of which holds one at most.
func (m *memory) take() (*slot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return nil, errSilent
	}
	if n := len(m.idle); n > 0 {
		s := m.idle[n-1]
		m.idle = m.idle[:n-1]
		m.out++
		return s, nil
	}
	s := &slot{mem: m}
	if n := len(m.numbers); n > 0 {
		s.number, m.numbers = m.numbers[n-1], m.numbers[:n-1]
	} else {
		if err := m.extend(m.slots + 1); err != nil {
			return nil, err
		}
		s.number = m.slots
		m.slots++
	}
	if err := s.reach(firstMap); err != nil {
		return nil, err
	}
	if err := s.see(firstMap); err != nil {
		s.unmap()
		return nil, err
	}
	m.out++
	return s, nil
}

func (s *slot) offset() int64 { return int64(s.number+1) * span }

// reach maps our half at least that far.
func (s *slot) reach(size int) error {
	return s.remap(&s.in, s.offset(), size)
}

// see maps the worker's half at least that far.
func (s *slot) see(size int) error {
	return s.remap(&s.out, s.offset()+half, size)
}

func (s *slot) remap(b *[]byte, offset int64, size int) error {
	if size <= len(*b) {
		return nil
	}
	larger, err := s.mem.mapAt(offset, mapSize(size))
	if err != nil {
		return err
	}
	unmap(*b)
	*b = larger
	return nil
}

func (s *slot) unmap() {
	unmap(s.in)
	unmap(s.out)
	s.in, s.out = nil, nil
}

// describe writes the table of a batch's inputs, unless the batch before had the
// same. The stamp tells the worker whether it did: reading a table costs it more
// than most else of a small batch.
func (s *slot) describe(table []byte) {
	if bytes.Equal(table, s.described) {
		return
	}
	s.described = append(s.described[:0], table...)
	copy(s.in[headSize:], table)
	binary.LittleEndian.PutUint64(s.in[stampAt:], s.mem.stamps.Add(1))
}

// Release implements infer.Releaser: one response less.
func (s *slot) Release() {
	if s.refs.Add(-1) == 0 {
		s.back()
	}
}

// back gives the slot back.
func (s *slot) back() {
	if s.kept {
		s.mem.drop(s)
		return
	}
	s.mem.put(s)
}

// put takes a slot back.
func (m *memory) put(s *slot) {
	s.shrink()
	m.mu.Lock()
	m.out--
	if m.retired {
		last := m.out == 0
		m.mu.Unlock()
		s.unmap()
		if last {
			m.close()
		}
		return
	}
	keep := len(m.idle) < maxIdle
	if keep {
		m.idle = append(m.idle, s)
	}
	m.mu.Unlock()
	if !keep {
		s.unmap()
		m.punch(s.offset(), span)
		m.mu.Lock()
		m.numbers = append(m.numbers, s.number) // not before its memory is gone
		m.mu.Unlock()
	}
}

// trim gives back the memory of idle slots. They hold nothing afterwards, as
// new ones do.
func (m *memory) trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return // they are being freed
	}
	for _, s := range m.idle {
		s.unmap()
		m.punch(s.offset(), span)
		m.numbers = append(m.numbers, s.number)
	}
	m.idle = nil
}

// drop takes a slot back that must not be used again.
func (m *memory) drop(s *slot) {
	s.unmap()
	m.mu.Lock()
	m.out--
	last := m.retired && m.out == 0
	m.mu.Unlock()
	if last {
		m.close()
	}
}

// shrink gives back what an unusually large batch needed.
func (s *slot) shrink() {
	if s.usedIn > keptSize {
		s.mem.punch(s.offset()+keptSize, int64(len(s.in)-keptSize))
	}
	if s.usedOut > keptSize {
		s.mem.punch(s.offset()+half+keptSize, int64(len(s.out)-keptSize))
	}
	if cap(s.table) > keptSize {
		s.table = nil
	}
	if cap(s.described) > keptSize {
		s.described = nil
	}
	if cap(s.text) > keptSize {
		s.text = nil
	}
}

// retire says that the worker is gone: what is idle is freed now and the rest
// when it comes back.
func (m *memory) retire() {
	m.mu.Lock()
	m.retired = true
	last := m.out == 0
	m.mu.Unlock()
	if last {
		m.close()
	}
}
