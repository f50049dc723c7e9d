package grpcserver

import (
	"encoding/binary"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"shoal/internal/inflight"
	"shoal/internal/reject"
)

// prefixLen is the length of gRPC's message prefix: a compression flag and the
// length.
const prefixLen = 5

// An assembly assembles messages from the data frames of a call. It claims
// memory for bytes that have arrived, never for bytes that a client announces.
type assembly struct {
	prefix  [prefixLen]byte
	prefixN int
	left    int // bytes of the message that have not arrived
	got     int // bytes that have
	piece   []byte
	memory  *[]byte // what piece is a part of
	filled  int
	data    mem.BufferSlice
	first   [2]mem.Buffer // memory for data of the first message
	later   bool          // it was used
	fault   error         // what is wrong with the message; the rest of the call is ignored
}

// A new piece of a message takes growth times as much as has arrived, but at
// least minPiece. The smallest buffer of a pool is larger than 1 KB.
const (
	growth   = 4
	minPiece = 2 << 10
	maxPiece = 16 << 20
)

// begin reads the prefix, which has arrived.
func (a *assembly) begin(limit int, memory *inflight.Pool) {
	n := binary.BigEndian.Uint32(a.prefix[1:])
	switch {
	case int64(n) > int64(limit):
		a.fault = rejectf(reject.TooLarge, codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, limit)
		return
	case a.prefix[0] > 1:
		a.fault = rejectf(reject.Malformed, codes.Internal, "grpc: received unexpected payload format %d", a.prefix[0])
		return
	}
	if err := memory.Budget().Check(int64(n)); err != nil {
		a.fault = exhausted(err)
		return
	}
	a.left, a.got = int(n), 0
	if !a.later {
		a.data, a.later = a.first[:0], true
	}
}

// room returns where the next bytes of the message go, at most n and at least
// one; buffered of them have arrived. It may wait for memory and returns nil,
// with a.fault set, when there is none.
func (a *assembly) room(n, buffered int, held int64, memory *inflight.Pool) []byte {
	if a.filled == len(a.piece) {
		size := min(a.left, maxPiece, max(minPiece, buffered, growth*a.got))
		buf, err := memory.Claim(max(size, minPiece), held+int64(a.got))
		if err != nil {
			a.fault = exhausted(err)
			return nil
		}
		a.memory, a.piece, a.filled = buf, (*buf)[:size], 0
	}
	return a.piece[a.filled:min(len(a.piece), a.filled+n)]
}

// exhausted is the status of a message that the memory budget has no room for.
func exhausted(err error) *rejection {
	return rejectf(reject.Overloaded, codes.ResourceExhausted, "%s", err)
}

// add counts n bytes that were stored in room's result.
func (a *assembly) add(n int, memory *inflight.Pool) {
	a.filled += n
	a.got += n
	a.left -= n
	if a.filled == len(a.piece) {
		*a.memory = a.piece
		a.data = append(a.data, mem.NewBuffer(a.memory, memory))
		a.memory, a.piece, a.filled = nil, nil, 0
	}
}

// arriving returns how much of an incomplete message has arrived.
func (a *assembly) arriving() int64 {
	if a.left == 0 {
		return 0
	}
	return int64(a.got)
}

// take returns the complete message.
func (a *assembly) take() message {
	m := message{data: a.data, compressed: a.prefix[0] == 1, there: true}
	a.data, a.prefixN = nil, 0
	return m
}

// free frees the memory of a message that will not be complete.
func (a *assembly) free(memory *inflight.Pool) {
	if a.memory != nil {
		memory.Put(a.memory)
		a.memory, a.piece, a.filled = nil, nil, 0
	}
	a.data.Free()
	a.data = nil
}

// feed reads n bytes of a data frame. It returns how many are left when a
// message is complete, an error is found, or there are no more. The client
// already holds held bytes of memory.
func (a *assembly) feed(in *input, n, limit int, held int64, memory *inflight.Pool) (rest int, done bool, err error) {
	if a.prefixN < prefixLen {
		part := a.prefix[a.prefixN:min(prefixLen, a.prefixN+n)]
		if err := in.fill(part); err != nil {
			return 0, false, err
		}
		a.prefixN += len(part)
		if n -= len(part); a.prefixN < prefixLen {
			return 0, false, nil
		}
		if a.begin(limit, memory); a.fault != nil {
			return n, false, nil
		}
	}
	for n > 0 && a.left > 0 {
		part := a.room(n, min(n, in.buffered()), held, memory)
		if part == nil {
			return n, false, nil
		}
		if err := in.fill(part); err != nil {
			return 0, false, err
		}
		a.add(len(part), memory)
		n -= len(part)
	}
	return n, a.left == 0, nil
}
