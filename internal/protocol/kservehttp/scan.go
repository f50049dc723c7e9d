package kservehttp

// A fault is what made a JSON text not one. Its texts are those that clients
// of the original server know.
type fault uint8

const (
	noFault fault = iota
	faultEmpty
	faultTail
	faultValue
	faultName
	faultColon
	faultObject
	faultArray
	faultHex
	faultSurrogate
	faultEscape
	faultQuote
	faultControl
	faultTooBig
	faultFraction
	faultExponent
)

var faultTexts = [...]string{
	faultEmpty:     "The document is empty.",
	faultTail:      "The document root must not be followed by other values.",
	faultValue:     "Invalid value.",
	faultName:      "Missing a name for object member.",
	faultColon:     "Missing a colon after a name of object member.",
	faultObject:    "Missing a comma or '}' after an object member.",
	faultArray:     "Missing a comma or ']' after an array element.",
	faultHex:       "Incorrect hex digit after \\u escape in string.",
	faultSurrogate: "The surrogate pair in string is invalid.",
	faultEscape:    "Invalid escape character in string.",
	faultQuote:     "Missing a closing quotation mark in string.",
	faultControl:   "Invalid encoding in string.",
	faultTooBig:    "Number too big to be stored in double.",
	faultFraction:  "Miss fraction part in number.",
	faultExponent:  "Miss exponent in number.",
}

// A scanner walks over JSON text in place. It never allocates (but for a stack
// of one bit per level when an ignored value is nested very deep) and never
// recurses, so that no nesting is too deep for it. It takes NaN, Inf, Infinity
// and their negatives for numbers, and strings that are not UTF-8 as they are.
//
// Methods that can meet a fault report false and leave it in fault and at; the
// scanner is of no use afterwards. A NUL byte outside of a string stands for
// the end of the text, as it does for the original server.
type scanner struct {
	b     []byte
	pos   int
	fault fault
	at    int      // the offset of the fault
	open  []uint64 // one bit per open container in skip, set for objects
}

// reset points the scanner at a new text.
func (s *scanner) reset(b []byte) {
	s.b, s.pos, s.fault, s.at = b, 0, noFault, 0
}

// fail records a fault and returns false.
func (s *scanner) fail(f fault, at int) bool {
	s.fault, s.at = f, at
	return false
}

// peek returns the byte at the current position, 0 at the end of the text.
func (s *scanner) peek() byte {
	if s.pos < len(s.b) {
		return s.b[s.pos]
	}
	return 0
}

// space passes over white space and returns the byte after it.
func (s *scanner) space() byte {
	b, p := s.b, s.pos
	for p < len(b) {
		c := b[p]
		if c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			s.pos = p
			return c
		}
		p++
	}
	s.pos = p
	return 0
}

// begin looks for the document's value.
func (s *scanner) begin() bool {
	if s.space() == 0 {
		return s.fail(faultEmpty, s.pos)
	}
	return true
}

// end makes sure that nothing follows the document's value.
func (s *scanner) end() bool {
	if s.space() != 0 {
		return s.fail(faultTail, s.pos)
	}
	return true
}

// member passes over a member's name, which is returned raw, and its colon.
func (s *scanner) member() (name []byte, escaped, ok bool) {
	if s.peek() != '"' {
		return nil, false, s.fail(faultName, s.pos)
	}
	name, escaped, ok = s.str()
	if !ok {
		return nil, false, false
	}
	if s.space() != ':' {
		return nil, false, s.fail(faultColon, s.pos)
	}
	s.pos++
	s.space()
	return name, escaped, true
}

// enter passes over the bracket that opens a container and reports whether
// there is anything before the one that closes it; if not, it passes that too.
func (s *scanner) enter(closing byte) bool {
	s.pos++
	if s.space() == closing {
		s.pos++
		return false
	}
	return true
}

// next passes over what stands between two members or elements and reports
// whether there is another one. It passes the closing bracket if not.
func (s *scanner) next(closing byte, missing fault) (more, ok bool) {
	switch s.space() {
	case ',':
		s.pos++
		s.space()
		return true, true
	case closing:
		s.pos++
		return false, true
	}
	return false, s.fail(missing, s.pos)
}

// literal passes over a word such as true.
func (s *scanner) literal(word string) bool {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.fail(faultValue, s.pos)
		}
		s.pos++
	}
	return true
}

// skip passes over one value and all that is in it.
func (s *scanner) skip() bool {
	depth := 0
value:
	switch s.space() {
	case '{':
		if s.enter('}') {
			s.push(depth, true)
			depth++
			goto member
		}
	case '[':
		if s.enter(']') {
			s.push(depth, false)
			depth++
			goto value
		}
	default:
		if !s.scalar() {
			return false
		}
	}
after:
	if depth == 0 {
		return true
	}
	if s.isObject(depth - 1) {
		more, ok := s.next('}', faultObject)
		switch {
		case !ok:
			return false
		case more:
			goto member
		}
	} else {
		more, ok := s.next(']', faultArray)
		switch {
		case !ok:
			return false
		case more:
			goto value
		}
	}
	depth--
	goto after
member:
	if _, _, ok := s.member(); !ok {
		return false
	}
	goto value
}

// scalar passes over a value that is no container.
func (s *scanner) scalar() bool {
	switch s.peek() {
	case '"':
		_, _, ok := s.str()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	_, ok := s.number()
	return ok
}

func (s *scanner) push(depth int, object bool) {
	if depth>>6 == len(s.open) {
		s.open = append(s.open, 0)
	}
	bit := uint64(1) << (depth & 63)
	if object {
		s.open[depth>>6] |= bit
	} else {
		s.open[depth>>6] &^= bit
	}
}

func (s *scanner) isObject(depth int) bool {
	return s.open[depth>>6]>>(depth&63)&1 != 0
}
