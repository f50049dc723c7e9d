package infer

// Data is the content of one tensor: little-endian, row-major, no padding; each
// Bytes element follows its four-byte length. It may be in several pieces, as a
// protocol received it. Data does not own its memory.
type Data struct {
	First []byte
	Rest  [][]byte // the pieces after First, usually none
	// Private means that no other process can change the memory. An instance
	// may then compute on it in place; what others can write is copied first,
	// since a library may check a value and read it again.
	Private bool
	// Shared is the file that has First; nil if none has. A worker may map it
	// where values that change do no harm.
	Shared *Shared
}

// Size returns the number of bytes in all pieces.
func (d Data) Size() int {
	n := len(d.First)
	for _, p := range d.Rest {
		n += len(p)
	}
	return n
}

// CopyTo copies all pieces to dst, which must be large enough, and returns the
// number of bytes copied.
func (d Data) CopyTo(dst []byte) int {
	n := copy(dst, d.First)
	for _, p := range d.Rest {
		n += copy(dst[n:], p)
	}
	return n
}

// Contiguous returns the content in one piece: First itself when it is the only
// piece, else a copy appended to buf[:0].
func (d Data) Contiguous(buf []byte) []byte {
	if len(d.Rest) == 0 {
		return d.First
	}
	buf = append(buf[:0], d.First...)
	for _, p := range d.Rest {
		buf = append(buf, p...)
	}
	return buf
}
