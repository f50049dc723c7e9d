package python

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// A slot is the place of one batch in the shared memory. It holds the outputs
// until the last response made from them is released; meanwhile the worker uses
// another slot.
type slot struct {
	mem    *memory
	number int
	in     []byte // the half that we write
	out    []byte // the half that the worker writes
	refs   atomic.Int32
	kept   bool // the handler still reads our half: the slot must not be reused

	// used is how much of each half the batch has written.
	usedIn, usedOut int

	described []byte // the table of inputs that lies in our half

	table []byte // a copy of the result's table
	text  []byte // copies of the result's strings
}

const (
	// maxIdle is how many idle slots an instance keeps.
	maxIdle = 4
	// keptSize is how much memory an idle slot keeps in each half. Larger
	// batches are rare; their memory is freed when they are released.
	keptSize = 256 << 20
)

// take returns a slot. It never waits: the number of slots is bounded by the
// requests in flight, each of which holds at most one.
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

// reach maps at least size bytes of our half.
func (s *slot) reach(size int) error {
	return s.remap(&s.in, s.offset(), size)
}

// see maps at least size bytes of the worker's half.
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

// describe writes the table of a batch's inputs, unless the previous batch had
// the same. The stamp tells the worker whether it changed: parsing a table is
// the largest cost of a small batch for the worker.
func (s *slot) describe(table []byte) {
	if bytes.Equal(table, s.described) {
		return
	}
	s.described = append(s.described[:0], table...)
	copy(s.in[headSize:], table)
	binary.LittleEndian.PutUint64(s.in[stampAt:], s.mem.stamps.Add(1))
}

// Release implements infer.Releaser for one response.
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

// put takes a slot back into the pool.
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
		m.numbers = append(m.numbers, s.number) // not before its memory is freed
		m.mu.Unlock()
	}
}

// trim frees the memory of idle slots. Afterwards they are like new ones.
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

// drop takes back a slot that must not be reused.
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

// shrink frees the memory of an unusually large batch.
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

// retire marks that the worker is gone: idle slots are freed now and the others
// when they come back.
func (m *memory) retire() {
	m.mu.Lock()
	m.retired = true
	last := m.out == 0
	m.mu.Unlock()
	if last {
		m.close()
	}
}
