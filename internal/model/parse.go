package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
)

// Parse reads a configuration written as protobuf text. It accepts the texts
// that package prototext accepts, but reports all errors in a text at once, one
// per line, as "path:line:col: field: what is wrong; what is expected". The
// path is only for those messages.
func Parse(text []byte, path string) (*modelpb.ModelConfig, error) {
	p := &parser{faults: faults{path: path, text: text}}
	p.lex = lexer{text: text}
	p.next()
	cfg := &modelpb.ModelConfig{}
	p.message(cfg.ProtoReflect(), nil)
	if err := p.faults.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// A parser reads messages by their descriptors, with one token of lookahead.
// After an error it goes on at the next place where a field may begin, so that
// one error is one line. Its depth is that of the configuration's types, which
// do not recurse; unknown values are skipped without recursion.
type parser struct {
	faults faults
	lex    lexer
	tok    token    // the token to be looked at next
	path   []string // the path of the current field
}

// next moves to the next token. It reports the errors inside the previous one
// now, when its field is known.
func (p *parser) next() {
	for _, w := range p.tok.wrong {
		p.fault(w.at, "%s", w.text)
	}
	p.tok = p.lex.next()
}

// fault reports an error in the current field.
func (p *parser) fault(at int, format string, args ...any) {
	p.faults.add(at, strings.Join(p.path, "."), format, args...)
	if p.faults.more {
		p.lex.pos = len(p.lex.text) // enough: stop reading
	}
}

// A record is what fields are stored in: a message, or an entry of a map.
type record interface {
	Descriptor() protoreflect.MessageDescriptor
	NewField(protoreflect.FieldDescriptor) protoreflect.Value
	Mutable(protoreflect.FieldDescriptor) protoreflect.Value
	Set(protoreflect.FieldDescriptor, protoreflect.Value)
}

// message reads fields into m until the mark that closes open, or until the end
// of the text if open is nil.
func (p *parser) message(m record, open *token) {
	seen := seenFields{}
	separable := false // a comma or semicolon is allowed here
	for {
		switch {
		case p.tok.kind == tokenEnd:
			if open != nil {
				p.fault(p.tok.at, "%s is missing for the %s %s", closing(open), open, p.where(open))
			}
			return
		case open != nil && p.tok.raw == closing(open):
			p.next()
			return
		case p.tok.isAny("}>"):
			if open != nil {
				p.fault(p.tok.at, "%s does not close the %s %s; expected %s", p.tok, open, p.where(open), closing(open))
				p.next()
				return
			}
			p.fault(p.tok.at, "%s closes nothing; remove it", p.tok)
			p.next()
		case separable && p.tok.isAny(",;"):
			p.next()
			separable = false
		case p.tok.kind == tokenWord && p.tok.raw[0] != '-':
			p.field(m, seen)
			separable = true
		default:
			p.noField()
			separable = true
		}
	}
}

// skipColon moves over a colon and reports whether there was one.
func (p *parser) skipColon() bool {
	if p.tok.is(':') {
		p.next()
		return true
	}
	return false
}

// field reads one field, whose name is the token.
func (p *parser) field(m record, seen seenFields) {
	name := p.tok
	fd := m.Descriptor().Fields().ByTextName(name.text)
	p.next()
	colon := p.skipColon()
	if fd == nil {
		p.fault(name.at, "unknown field %s; %s", name, fieldHint(m.Descriptor(), name.text))
		p.skipValue(colon)
		return
	}
	p.path = append(p.path, fd.TextName())
	defer func() { p.path = p.path[:len(p.path)-1] }()

	if fd.Message() == nil && !colon {
		p.fault(name.at, "':' is missing after %s; expected %s: and %s", name, name, wanted(fd))
		p.skipValue(colon)
		return
	}
	switch {
	case fd.IsMap():
		p.values(func() { p.entry(fd, m.Mutable(fd).Map()) }, true)
	case fd.IsList():
		p.list(fd, m.Mutable(fd).List())
	default:
		first := p.once(fd, seen, name)
		if v, ok := p.value(fd, func() protoreflect.Value { return m.NewField(fd) }); ok && first {
			m.Set(fd, v)
		}
	}
}

// seenFields are the positions of the singular fields and oneofs that a message
// has.
type seenFields map[protoreflect.FullName]token

// once reports a repeated singular field, or a second member of a oneof.
func (p *parser) once(fd protoreflect.FieldDescriptor, seen seenFields, name token) bool {
	if before, twice := seen[fd.FullName()]; twice {
		p.fault(name.at, "%s is given twice, first %s; expected it once", name, p.where(&before))
		return false
	}
	seen[fd.FullName()] = name
	if one := fd.ContainingOneof(); one != nil {
		if before, twice := seen[one.FullName()]; twice {
			p.fault(name.at, "%s cannot be combined with %s, which is %s; expected one of them", name, before, p.where(&before))
			return false
		}
		seen[one.FullName()] = name
	}
	return true
}

// where describes a token's position.
func (p *parser) where(t *token) string {
	line, col := p.faults.position(t.at)
	return fmt.Sprintf("at %d:%d", line, col)
}

// closing returns the mark that closes open.
func closing(open *token) string {
	switch open.raw {
	case "{":
		return "}"
	case "<":
		return ">"
	}
	return "]"
}
