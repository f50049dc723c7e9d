package grpcserver

import "google.golang.org/grpc/mem"

// A Lender is a reply whose last buffer may be lent: memory that others wait for,
// such as a model's outputs. It is written from where it lies as far as the client
// takes it at once. Before anything waits for the client the rest is copied, so
// that no client holds such memory.
type Lender interface {
	// Lends reports whether the last buffer is lent.
	Lends() bool
	// Sent is called once when the reply is with the connection, or lost.
	Sent()
}

// keep replaces what is left of the lent buffer by a copy.
func (m *cursor) keep(memory mem.BufferPool) {
	m.lent = false
	if len(m.data) == 0 {
		return
	}
	last := &m.data[len(m.data)-1]
	rest := (*last).ReadOnlyData()
	if len(m.data) == 1 {
		rest, m.at = rest[m.at:], 0
	}
	kept := keep(rest, memory)
	(*last).Free()
	*last = kept
}

// keep copies what is lent, so that it can wait.
func (o *output) keep(memory mem.BufferPool) {
	for i := 0; o.lent > 0; i++ {
		if in := &o.inserts[i]; in.lent {
			kept := keep(in.data, memory)
			in.owner.Free()
			in.data, in.owner, in.lent = kept.ReadOnlyData(), kept, false
			o.lent--
		}
	}
}

func keep(data []byte, memory mem.BufferPool) mem.Buffer {
	buf := memory.Get(len(data))
	copy(*buf, data)
	return mem.NewBuffer(buf, memory)
}
