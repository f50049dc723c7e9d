package model

import "strings"

// How the parser goes on after a fault: each of these moves to where the next
// thing may begin.

// noField reports what stands where a field's name should, and skips it.
func (p *parser) noField() {
	switch {
	case p.tok.is('['):
		p.fault(p.tok.at, "extensions and Any are not accepted here; expected a field's name")
		p.lex.skipPast(']')
		p.next()
		p.skipValue(p.skipColon())
		return
	case p.tok.kind == tokenNumber && strings.IndexByte(":{<", p.lex.peek()) >= 0:
		p.fault(p.tok.at, "fields are given by name, not by number: %s", p.tok)
		p.next()
		p.skipValue(p.skipColon())
		return
	}
	p.fault(p.tok.at, "expected a field's name, got %s", p.tok)
	for !p.tok.isAny("}>") && p.tok.kind != tokenEnd && p.tok.kind != tokenWord {
		if p.tok.isAny("{<[") {
			p.skipBalanced()
		} else {
			p.next()
		}
	}
	if p.tok.kind == tokenWord && p.tok.raw[0] == '-' {
		p.next()
	}
}

// leaveList moves on after a list that is not as it should be: behind its
// bracket if that comes before anything that looks like the next field.
func (p *parser) leaveList() {
	for p.tok.kind != tokenEnd && !p.tok.isAny("}>") && !p.atField() {
		switch {
		case p.tok.is(']'):
			p.next()
			return
		case p.tok.isAny("{<["):
			p.skipBalanced()
		default:
			p.next()
		}
	}
}

// skipValue moves over the value of a field that is not known. Without a colon
// before it a word is the next field rather than a value.
func (p *parser) skipValue(colon bool) {
	switch {
	case p.tok.isAny("{<["):
		p.skipBalanced()
	case p.atField():
	case p.tok.isScalar() && (colon || p.tok.kind != tokenWord), p.tok.kind == tokenBad:
		p.next()
	}
}

// skipBalanced moves behind the mark that closes the one that is the token.
func (p *parser) skipBalanced() {
	depth := 0
	for p.tok.kind != tokenEnd {
		switch {
		case p.tok.isAny("{<["):
			depth++
		case p.tok.isAny("}>]"):
			depth--
		}
		p.next()
		if depth == 0 {
			return
		}
	}
}
