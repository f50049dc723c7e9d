package client

import (
	"bytes"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Sequence is a request's position in a sequence of related requests. The
// zero value is no sequence.
type Sequence struct {
	ID         uint64
	Start, End bool
}

// sequenceRoom returns the longest sequence parameters: they reserve space in
// the JSON of a request.
func sequenceRoom() map[string]any {
	return map[string]any{"sequence_end": false, "sequence_id": ^uint64(0), "sequence_start": false}
}

// sequenceHole is the JSON of sequenceRoom: names in order, no blanks.
const sequenceHole = `"sequence_end":false,"sequence_id":18446744073709551615,"sequence_start":false`

// SequenceSize is the space for a sequence in an encoded HTTP request.
const SequenceSize = len(sequenceHole)

// FindSequence returns the offset of that space in an encoded HTTP request; 0
// when there is none.
func FindSequence(wire []byte) int { return max(0, bytes.Index(wire, []byte(sequenceHole))) }

// AppendJSON appends the JSON members, padded with blanks to SequenceSize
// bytes.
func (s Sequence) AppendJSON(b []byte) []byte {
	from := len(b)
	b = append(b, `"sequence_end":`...)
	b = strconv.AppendBool(b, s.End)
	b = append(b, `,"sequence_id":`...)
	b = strconv.AppendUint(b, s.ID, 10)
	b = append(b, `,"sequence_start":`...)
	b = strconv.AppendBool(b, s.Start)
	for len(b)-from < len(sequenceHole) {
		b = append(b, ' ')
	}
	return b
}

// AppendProto appends the parameters of a ModelInferRequest.
func (s Sequence) AppendProto(b []byte) []byte {
	b = appendEntry(b, "sequence_id", protowire.AppendVarint([]byte{fieldInt << 3}, s.ID))
	b = appendEntry(b, "sequence_start", protowire.AppendVarint([]byte{fieldBool << 3}, protowire.EncodeBool(s.Start)))
	return appendEntry(b, "sequence_end", protowire.AppendVarint([]byte{fieldBool << 3}, protowire.EncodeBool(s.End)))
}

const fieldInt = 2 // of InferParameter

// appendEntry appends one of the parameters; requests and answers have them
// under the same field number.
func appendEntry(b []byte, name string, value []byte) []byte {
	b = protowire.AppendTag(b, fieldParameters, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeBytes(len(name))+protowire.SizeBytes(len(value))+2))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, name)
	b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
	return protowire.AppendBytes(b, value)
}
