package kservehttp

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// appendQuoted appends s as a JSON string. Invalid UTF-8, which JSON cannot
// hold, becomes U+FFFD, so that a client's JSON parser does not fail; use the
// binary form to get the original bytes.
func appendQuoted[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscape(b, c)
			i++
			start = i
			continue
		}
		r, n := decodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, s[start:i]...)
			b = append(b, "\uFFFD"...)
			start = i + 1
		}
		i += n
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	var buf [utf8.UTFMax]byte
	return utf8.DecodeRune(buf[:copy(buf[:], s)])
}

// appendEscape appends an escaped character.
func appendEscape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

// appendMember appends a name and a colon, and a comma before them unless an
// object was just opened. The name must need no escapes.
func appendMember(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// appendInts appends integers as a JSON array.
func appendInts(b []byte, ints []int64) []byte {
	b = append(b, '[')
	for i, v := range ints {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return append(b, ']')
}

// appendDouble appends f as Triton prints it: with the fewest digits that give
// f back, always with a point or an exponent, and with the words NaN and
// Infinity, which are not JSON but which clients read.
func appendDouble(b []byte, f float64) []byte {
	if i := int64(f); float64(i) == f && -1e15 < f && f < 1e15 {
		if i == 0 && math.Signbit(f) {
			return append(b, "-0.0"...)
		}
		b = strconv.AppendInt(b, i, 10)
		return append(b, '.', '0')
	}
	switch {
	case f != f:
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if f < 0 {
		b = append(b, '-')
		f = -f
	}
	var buf [32]byte
	return appendDecimal(b, strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
}

// appendDecimal formats a positive number given as d.ddde±xx.
func appendDecimal(b, e []byte) []byte {
	mark := len(e) - 4 // the e, which a sign and two or three digits follow
	if e[mark] != 'e' {
		mark--
	}
	exp := 0
	for _, c := range e[mark+2:] {
		exp = exp*10 + int(c-'0')
	}
	if e[mark+1] == '-' {
		exp = -exp
	}
	var buf [20]byte // a double has at most 17 digits
	digits := append(buf[:0], e[0])
	if mark > 2 {
		digits = append(digits, e[2:mark]...)
	}

	point := exp + 1 // digits before the point
	switch {
	case len(digits) <= point && point <= 21:
		b = append(b, digits...)
		for range point - len(digits) {
			b = append(b, '0')
		}
		return append(b, '.', '0')
	case 0 < point && point <= 21:
		b = append(b, digits[:point]...)
		b = append(b, '.')
		return append(b, digits[point:]...)
	case -6 < point && point <= 0:
		b = append(b, '0', '.')
		for range -point {
			b = append(b, '0')
		}
		return append(b, digits...)
	}
	b = append(b, digits[0])
	if len(digits) > 1 {
		b = append(b, '.')
		b = append(b, digits[1:]...)
	}
	b = append(b, 'e')
	return strconv.AppendInt(b, int64(exp), 10)
}
