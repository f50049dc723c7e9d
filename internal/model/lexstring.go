package model

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// str returns the string at pos: all adjacent quoted pieces, joined. An
// unclosed string ends where a reader would end it.
func (l *lexer) str() token {
	t := token{kind: tokenString, at: l.pos}
	to := l.pos
	var value []byte
	for c := l.peek(); c == '"' || c == '\''; c = l.peek() {
		value = l.piece(value, &t)
		to = l.pos
	}
	t.raw, t.text = string(l.text[t.at:to]), string(value)
	return t
}

// piece appends the value of one quoted piece to value, and its errors to the
// token.
func (l *lexer) piece(value []byte, t *token) []byte {
	wrong := func(at int, format string, args ...any) {
		t.wrong = append(t.wrong, lexFault{at, fmt.Sprintf(format, args...)})
	}
	open := l.pos
	quote := l.text[l.pos]
	for l.pos++; l.pos < len(l.text); {
		rest := l.text[l.pos:]
		r, n := utf8.DecodeRune(rest)
		switch {
		case rest[0] == quote:
			l.pos++
			return value
		case r == '\n':
			wrong(open, "the string that begins here does not end on its line; expected a closing %c (write \\n for a line break)", quote)
			return value
		case r == utf8.RuneError && n == 1:
			wrong(l.pos, "byte 0x%02x is not UTF-8; save the file as UTF-8", rest[0])
		case r == 0:
			wrong(l.pos, "a string cannot have a NUL byte as such; write \\000")
		case r == '\\':
			var ok bool
			if value, n, ok = escape(value, rest); !ok {
				wrong(l.pos, "%q is not an escape sequence; write \\\\ for a backslash", rest[:n])
			}
			l.pos += n
			continue
		}
		value = append(value, rest[:n]...)
		l.pos += n
	}
	wrong(open, "the string that begins here never ends; expected a closing %c", quote)
	return value
}

var plainEscapes = map[byte]byte{
	'"': '"', '\'': '\'', '\\': '\\', '?': '?',
	'a': '\a', 'b': '\b', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 'f': '\f',
}

// escape appends the value of the escape at the start of in. It returns the
// number of bytes that the escape uses, at least one, also when it is invalid.
func escape(value, in []byte) (_ []byte, n int, ok bool) {
	if len(in) < 2 {
		return value, 1, false
	}
	c := in[1]
	if plain, found := plainEscapes[c]; found {
		return append(value, plain), 2, true
	}
	switch {
	case '0' <= c && c <= '7':
		return byteEscape(value, in, 1, 3, 8, "01234567")
	case c == 'x':
		return byteEscape(value, in, 2, 2, 16, "0123456789abcdefABCDEF")
	case c == 'u':
		return runeEscape(value, in, 6)
	case c == 'U':
		return runeEscape(value, in, 10)
	case c >= utf8.RuneSelf || c == '\n':
		return value, 1, false // the byte after it is parsed on its own
	}
	return value, 2, false
}

// byteEscape reads up to most digits that begin at in[from] as one byte.
func byteEscape(value, in []byte, from, most, base int, digits string) ([]byte, int, bool) {
	to := from
	for to < len(in) && to < from+most && bytes.IndexByte([]byte(digits), in[to]) >= 0 {
		to++
	}
	v, err := strconv.ParseUint(string(in[from:to]), base, 8)
	if err != nil {
		return value, to, false
	}
	return append(value, byte(v)), to, true
}

// runeEscape reads the \u or \U escape of n bytes, and the second half when it
// is the first half of a surrogate pair.
func runeEscape(value, in []byte, n int) ([]byte, int, bool) {
	r, ok := hexRune(in, n)
	if !ok {
		return value, 2, false
	}
	if utf16.IsSurrogate(r) {
		rest := in[n:]
		if len(rest) < 2 || rest[0] != '\\' || rest[1] != 'u' {
			return value, n, false
		}
		low, ok := hexRune(rest, 6)
		if r = utf16.DecodeRune(r, low); !ok || r == unicode.ReplacementChar {
			return value, n, false
		}
		n += 6
	}
	return utf8.AppendRune(value, r), n, true
}

// hexRune returns the character whose number is in[2:n] in hexadecimal.
func hexRune(in []byte, n int) (rune, bool) {
	if len(in) < n {
		return 0, false
	}
	v, err := strconv.ParseUint(string(in[2:n]), 16, 32)
	if err != nil || v > utf8.MaxRune {
		return 0, false
	}
	return rune(v), true
}
