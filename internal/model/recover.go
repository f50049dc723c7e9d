package model

import "strings"

// How the parser goes on after an error: each of these moves to where the next
// element may begin.

// noField reports a token where a field's name should be, and skips it.
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
	if p.tok.is('{') && p.tok.at == 0 {
		p.fault(p.tok.at, "expected a field's name, got {: this file has protobuf's text format, not JSON; write max_batch_size: 8 rather than {\"max_batch_size\": 8}")
	} else {
		p.fault(p.tok.at, "expected a field's name, got %s", p.tok)
	}
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

// leaveList moves on after a malformed list: past its bracket if that comes
// before anything that looks like the next field.
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

// skipValue skips the value of an unknown field. Without a colon a word is the
// next field rather than a value.
func (p *parser) skipValue(colon bool) {
	switch {
	case p.tok.isAny("{<["):
		p.skipBalanced()
	case p.atField():
	case p.tok.isScalar() && (colon || p.tok.kind != tokenWord), p.tok.kind == tokenBad:
		p.next()
	}
}

// skipBalanced moves past the mark that closes the current one.
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
