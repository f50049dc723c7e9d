package grpcserver

import (
	"net"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// An output collects frames for one write. Small ones are copied into one
// buffer; large payloads are not copied and are held until they are written.
type output struct {
	buf     []byte
	inserts []insert
	lent    int         // inserts that are lent
	size    int         // bytes of buf and inserts
	vector  net.Buffers // memory for write
	rest    net.Buffers // what write must still send
}

// An insert is a payload that goes out after the first at bytes of the buffer.
type insert struct {
	at    int
	data  []byte
	owner mem.Buffer
	lent  bool // see Lender
}

// copySize is how large a payload may be to be copied: another element of the
// system call's list and holding it cost about as much.
const copySize = 4 << 10

// keepSize is how much memory an idle connection keeps for its output.
const keepSize = 64 << 10

// empty reports whether there is nothing to write.
func (o *output) empty() bool { return o.size == 0 }

// settle counts what was appended to buf.
func (o *output) settle(b []byte) {
	o.size += len(b) - len(o.buf)
	o.buf = b
}

// payload appends a part of owner's data, which may be lent.
func (o *output) payload(data []byte, owner mem.Buffer, lent bool) {
	o.size += len(data)
	if len(data) <= copySize {
		o.buf = append(o.buf, data...)
		return
	}
	owner.Ref()
	o.inserts = append(o.inserts, insert{len(o.buf), data, owner, lent})
	if lent {
		o.lent++
	}
}

// writeStep is how much is written before it is counted, to distinguish a slow
// client from one that does not read.
const writeStep = 512 << 10

// list returns what is to be written, in parts of at most writeStep.
func (o *output) list() net.Buffers {
	list := o.vector[:0]
	from := 0
	for i := range o.inserts {
		if at := o.inserts[i].at; at > from {
			list = append(list, o.buf[from:at])
			from = at
		}
		data := o.inserts[i].data
		for ; len(data) > writeStep; data = data[writeStep:] {
			list = append(list, data[:writeStep])
		}
		list = append(list, data)
	}
	if from < len(o.buf) {
		list = append(list, o.buf[from:])
	}
	o.vector = list[:0]
	return list
}

// try sends what the socket takes at once and returns how much that was.
func (o *output) try(socket *nonBlocking, written *atomic.Int64) (int, error) {
	n, err := socket.write(o.list())
	written.Add(int64(n))
	return n, err
}

// write sends everything but the first bytes, which were sent, and counts what the
// socket took. What is lent was written or is kept.
func (o *output) write(conn net.Conn, sent int, written *atomic.Int64) error {
	if len(o.inserts) == 0 {
		n, err := conn.Write(o.buf)
		written.Add(int64(n))
		return err
	}
	list := o.list()
	for ; sent > 0 && sent >= len(list[0]); list = list[1:] {
		sent -= len(list[0])
	}
	list[0] = list[0][sent:]
	for len(list) > 0 {
		k, size := 0, 0
		for ; k < len(list) && (k == 0 || size+len(list[k]) <= writeStep); k++ {
			size += len(list[k])
		}
		o.rest, list = list[:k], list[k:]
		n, err := o.rest.WriteTo(conn)
		if written.Add(n); err != nil {
			return err
		}
	}
	return nil
}

// reset empties the output and releases what it held.
func (o *output) reset() {
	for i := range o.inserts {
		o.inserts[i].owner.Free()
	}
	clear(o.inserts)
	clear(o.vector[:cap(o.vector)])
	o.rest = nil
	o.inserts, o.lent, o.buf, o.size = o.inserts[:0], 0, o.buf[:0], 0
	if cap(o.buf) > keepSize {
		o.buf = nil
	}
}
