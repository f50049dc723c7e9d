package kservegrpc

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/infer"
)

// segments reads a message in several pieces. Its results alias the pieces
// where possible; only what crosses from one piece into the next is copied,
// into memory of the request.
type segments struct {
	cur  []byte          // the rest of the current piece
	rest mem.BufferSlice // the pieces after it
	left int             // bytes left in all pieces
	req  *infer.Request
}

func newSegments(data mem.BufferSlice, req *infer.Request) segments {
	s := segments{rest: data, left: data.Len(), req: req}
	s.settle()
	return s
}

// settle moves on to a piece that is not empty, if there is one.
func (s *segments) settle() {
	for len(s.cur) == 0 && len(s.rest) > 0 {
		s.cur, s.rest = s.rest[0].ReadOnlyData(), s.rest[1:]
	}
}

// skip skips n bytes, which must be there.
func (s *segments) skip(n int) {
	s.left -= n
	for n > len(s.cur) {
		n -= len(s.cur)
		s.cur = nil
		s.settle()
	}
	s.cur = s.cur[n:]
	s.settle()
}

// varint reads a number.
func (s *segments) varint() (uint64, bool) {
	v, n := protowire.ConsumeVarint(s.cur)
	if n < 0 && len(s.cur) < maxVarint && len(s.rest) > 0 {
		var joined [maxVarint]byte
		v, n = protowire.ConsumeVarint(joined[:s.peek(joined[:])])
	}
	if n < 0 {
		return 0, false
	}
	s.skip(n)
	return v, true
}

const maxVarint = 10

// peek copies what comes next to dst and returns how much there was.
func (s *segments) peek(dst []byte) int {
	n := copy(dst, s.cur)
	for _, b := range s.rest {
		if n == len(dst) {
			break
		}
		n += copy(dst[n:], b.ReadOnlyData())
	}
	return n
}

// length reads the length of what follows and checks that it is there.
func (s *segments) length() (int, bool) {
	v, ok := s.varint()
	if !ok || v > uint64(s.left) {
		return 0, false
	}
	return int(v), true
}

// bytes reads a length and returns that many bytes in one piece.
func (s *segments) bytes() ([]byte, bool) {
	n, ok := s.length()
	if !ok {
		return nil, false
	}
	return s.take(n), true
}

// take returns the next n bytes, which must be there, in one piece.
func (s *segments) take(n int) []byte {
	if n <= len(s.cur) {
		b := s.cur[:n:n]
		s.skip(n)
		return b
	}
	b := s.req.Grow(n)
	s.peek(b)
	s.skip(n)
	return b
}

// minPiece is the mean size below which the pieces of a tensor are joined:
// their bookkeeping would cost more than a copy.
const minPiece = 512

// data reads a length and returns that many bytes without a copy, with the list
// of pieces appended to pieces.
func (s *segments) data(pieces [][]byte) (infer.Data, [][]byte, bool) {
	n, ok := s.length()
	if !ok {
		return infer.Data{}, pieces, false
	}
	if n <= len(s.cur) {
		return infer.Data{First: s.take(n)}, pieces, true
	}
	if n < minPiece*s.spanned(n) {
		return infer.Data{First: s.take(n)}, pieces, true
	}
	first := s.cur
	n -= len(first)
	s.skip(len(first))
	start := len(pieces)
	for n > 0 {
		p := s.cur[:min(n, len(s.cur))]
		pieces = append(pieces, p)
		n -= len(p)
		s.skip(len(p))
	}
	return infer.Data{First: first, Rest: pieces[start:len(pieces):len(pieces)]}, pieces, true
}

// spanned returns the number of pieces over which the next n bytes lie.
func (s *segments) spanned(n int) int {
	count := 1
	n -= len(s.cur)
	for _, b := range s.rest {
		if n <= 0 {
			break
		}
		n -= b.Len()
		count++
	}
	return count
}

// flatten joins everything left into one piece, for the rare field that cannot
// be parsed in several.
func (s *segments) flatten() {
	if len(s.rest) == 0 {
		return
	}
	b := s.req.Grow(s.left)
	s.peek(b)
	s.cur, s.rest = b, nil
}

// skipField skips the value of an unknown field.
func (s *segments) skipField(num protowire.Number, typ protowire.Type) bool {
	switch typ {
	case protowire.BytesType:
		n, ok := s.length()
		if ok {
			s.skip(n)
		}
		return ok
	case protowire.VarintType:
		_, ok := s.varint()
		return ok
	case protowire.Fixed32Type:
		return s.skipFixed(4)
	case protowire.Fixed64Type:
		return s.skipFixed(8)
	}
	s.flatten()
	n := protowire.ConsumeFieldValue(num, typ, s.cur)
	if n < 0 {
		return false
	}
	s.skip(n)
	return true
}

func (s *segments) skipFixed(n int) bool {
	if s.left < n {
		return false
	}
	s.skip(n)
	return true
}
