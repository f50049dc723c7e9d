package kservehttp

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// plain tells the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := ' '; c < 256; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// str passes over a string and returns what is between its quotes, raw, and
// whether there are escapes in it, which are checked but not replaced.
func (s *scanner) str() (raw []byte, escaped, ok bool) {
	b, start := s.b, s.pos+1
	p := start
	for {
		p = plainUntil(b, p)
		switch {
		case p >= len(b) || b[p] == 0:
			return nil, false, s.fail(faultQuote, p)
		case b[p] == '"':
			s.pos = p + 1
			return b[start:p], escaped, true
		case b[p] != '\\':
			return nil, false, s.fail(faultControl, p)
		}
		escaped = true
		n, f := escape(b[p:])
		if f != noFault {
			return nil, false, s.fail(f, p)
		}
		p += n
	}
}

// plainUntil returns the place of the first byte from p on that does not stand
// for itself, or the length of b. It looks at eight bytes at a time.
func plainUntil(b []byte, p int) int {
	for p+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[p:])
		quote, slash := w^ones*'"', w^ones*'\\'
		// Each term has the top bit set in bytes that are below a space, a
		// quote or a backslash. A borrow can set it wrongly only in bytes
		// above a right one, and the lowest is what counts.
		found := ((w - ones*' ') &^ w) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if found &= ones << 7; found != 0 {
			return p + bits.TrailingZeros64(found)>>3
		}
		p += 8
	}
	for p < len(b) && plain[b[p]] {
		p++
	}
	return p
}

// ones has the lowest bit of every byte set.
const ones = 0x0101010101010101

// escape returns the length of the escape sequence that b begins with.
func escape(b []byte) (int, fault) {
	if len(b) < 2 {
		return 0, faultEscape
	}
	if unescaped[b[1]] != 0 {
		return 2, noFault
	}
	if b[1] != 'u' {
		return 0, faultEscape
	}
	first, ok := hex4(b[2:])
	switch {
	case !ok:
		return 0, faultHex
	case first < 0xD800 || first > 0xDFFF:
		return 6, noFault
	case first > 0xDBFF || len(b) < 8 || b[6] != '\\' || b[7] != 'u':
		return 0, faultSurrogate
	}
	second, ok := hex4(b[8:])
	switch {
	case !ok:
		return 0, faultHex
	case second < 0xDC00 || second > 0xDFFF:
		return 0, faultSurrogate
	}
	return 12, noFault
}

var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// hex4 reads the four digits that b begins with.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendUnescaped appends the text of a string that str has passed over. It is
// never longer than raw.
func appendUnescaped(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		if c := unescaped[raw[i+1]]; c != 0 {
			dst = append(dst, c)
			i += 2
			continue
		}
		r, _ := hex4(raw[i+2:])
		i += 6
		if r >= 0xD800 && r <= 0xDFFF {
			low, _ := hex4(raw[i+2:])
			r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
			i += 6
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// alias returns b as a string without a copy. The string is valid as long as b
// is not written to.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
