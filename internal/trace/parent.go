package trace

import "encoding/hex"

// A Parent is the span of a caller that a trace continues, as the W3C's trace context
// has it. The zero value is none.
type Parent struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
	State   string
}

// Valid reports whether there is a caller's span.
func (p Parent) Valid() bool { return p.TraceID != [16]byte{} && p.SpanID != [8]byte{} }

// Sampled reports whether the caller records its trace.
func (p Parent) Sampled() bool { return p.Valid() && p.Flags&1 != 0 }

// ParseParent reads the headers traceparent and tracestate. A traceparent that is not
// valid is none.
func ParseParent(parent, state string) (p Parent) {
	// version "-" trace-id "-" parent-id "-" flags; a later version may have more
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(parent) < length || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return Parent{}
	}
	var version, flags [1]byte
	ok := lowerHex(version[:], parent[:2]) && lowerHex(p.TraceID[:], parent[3:35]) &&
		lowerHex(p.SpanID[:], parent[36:52]) && lowerHex(flags[:], parent[53:55])
	switch {
	case !ok || version[0] == 0xff || !p.Valid():
		return Parent{}
	case version[0] == 0 && len(parent) != length:
		return Parent{}
	case len(parent) > length && parent[length] != '-':
		return Parent{}
	}
	p.Flags, p.State = flags[0], state
	return p
}

// lowerHex decodes hexadecimal digits, of which only the small ones are allowed.
func lowerHex(dst []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}
