package model

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A tokenKind says what a token is.
type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // a name or a literal such as true, KIND_CPU or -inf
	tokenNumber           // text is without blanks and without the suffix f
	tokenString           // text is the value: unescaped and joined
	tokenMark             // one of {}<>[]:,;
	tokenBad              // not part of the format
)

// A token is a piece of protobuf text.
type token struct {
	kind  tokenKind
	at    int    // offset of its first byte
	raw   string // as written
	text  string // the value of a word, number or string
	float bool   // a number that is not written as an integer
	// wrong is the errors inside a string. The parser reports them when it
	// knows which field the string belongs to.
	wrong []lexFault
}

// A lexFault is an error inside a token.
type lexFault struct {
	at   int
	text string
}

// is reports whether the token is that mark.
func (t token) is(mark byte) bool { return t.kind == tokenMark && t.raw[0] == mark }

// isAny reports whether the token is one of the marks.
func (t token) isAny(marks string) bool {
	return t.kind == tokenMark && strings.IndexByte(marks, t.raw[0]) >= 0
}

// isScalar reports whether the token may be a value.
func (t token) isScalar() bool {
	return t.kind == tokenWord || t.kind == tokenNumber || t.kind == tokenString
}

// String names the token in a message: its beginning, on one line.
func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end of the file"
	}
	const most = 40
	name := t.raw
	if i := strings.IndexByte(name, '\n'); i >= 0 || len(name) > most {
		if i < 0 || i > most {
			i = most
		}
		name = strings.ToValidUTF8(name[:i], "") + "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// A lexer splits protobuf text into tokens. Its tokens do not depend on their
// context, so the parser can go on after an error.
type lexer struct {
	text []byte
	pos  int
}

// next returns the next token.
func (l *lexer) next() token {
	l.skipBlanks()
	if l.pos == len(l.text) {
		return token{kind: tokenEnd, at: l.pos}
	}
	switch c := l.text[l.pos]; {
	case c == '"' || c == '\'':
		return l.str()
	case isRun(c):
		return l.run()
	case strings.IndexByte("{}<>[]:,;", c) >= 0:
		return l.cut(tokenMark, l.pos, l.pos+1)
	}
	return l.junk()
}

// cut returns the token of text[from:to] and moves past it.
func (l *lexer) cut(kind tokenKind, from, to int) token {
	l.pos = to
	raw := string(l.text[from:to])
	return token{kind: kind, at: from, raw: raw, text: raw}
}

// peek returns the next byte that is not blank, 0 at the end.
func (l *lexer) peek() byte {
	l.skipBlanks()
	if l.pos == len(l.text) {
		return 0
	}
	return l.text[l.pos]
}

// skipBlanks skips white space and comments.
func (l *lexer) skipBlanks() {
	for l.pos < len(l.text) {
		switch l.text[l.pos] {
		case ' ', '\t', '\r', '\n':
			l.pos++
		case '#':
			l.skipPast('\n')
		default:
			return
		}
	}
}

// skipPast moves past the next c, or to the end when there is none.
func (l *lexer) skipPast(c byte) {
	if i := bytes.IndexByte(l.text[l.pos:], c); i >= 0 {
		l.pos += i + 1
	} else {
		l.pos = len(l.text)
	}
}

// isRun reports whether c belongs to a word or a number.
func isRun(c byte) bool {
	return c == '-' || c == '+' || c == '.' || c == '_' ||
		'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// runEnd returns the end of the run at offset from.
func (l *lexer) runEnd(from int) int {
	for from < len(l.text) && isRun(l.text[from]) {
		from++
	}
	return from
}

var (
	word    = regexp.MustCompile(`^-?[A-Za-z_][A-Za-z_0-9]*$`)
	integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[0-7]+)$`)
	decimal = regexp.MustCompile(`^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fF]?$`)
)

// run returns the word or number at pos. There may be blanks between a minus
// sign and its number.
func (l *lexer) run() token {
	from := l.pos
	to := l.runEnd(from)
	text := string(l.text[from:to])
	if text == "-" {
		l.pos = to
		l.skipBlanks()
		if end := l.runEnd(l.pos); end > l.pos && l.text[l.pos] != '-' {
			text, to = text+string(l.text[l.pos:end]), end
		}
		if word.MatchString(text) { // only numbers may
			return l.cut(tokenBad, from, to)
		}
	}
	kind := tokenBad
	float := false
	switch {
	case word.MatchString(text):
		kind = tokenWord
	case integer.MatchString(text):
		kind = tokenNumber
	case decimal.MatchString(text):
		kind, float = tokenNumber, true
		text = strings.TrimRight(text, "fF")
	}
	t := l.cut(kind, from, to)
	t.text, t.float = text, float
	return t
}

// junk returns everything up to the next byte that may begin a token.
func (l *lexer) junk() token {
	to := l.pos
	for to < len(l.text) && !isRun(l.text[to]) && strings.IndexByte("{}<>[]:,;\"'# \t\r\n", l.text[to]) < 0 {
		_, n := utf8.DecodeRune(l.text[to:])
		to += n
	}
	return l.cut(tokenBad, l.pos, to)
}
