package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// Parse reads a configuration written as protobuf text. It accepts the texts
// that package prototext accepts, but reports every fault of a text at once,
// one on a line, as "path:line:col: field: what is wrong; what is expected".
// The path is only for those messages.
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

// ParseJSON reads a configuration written as protobuf JSON, as the load
// request's config parameter has it. Unknown fields are refused.
func ParseJSON(text []byte) (*modelpb.ModelConfig, error) {
	cfg := &modelpb.ModelConfig{}
	if err := protojson.Unmarshal(text, cfg); err != nil {
		// The library blurs its texts with no-break spaces on purpose.
		why := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
		return nil, status.Errorf(status.InvalidArgument, "model configuration is not the JSON of a ModelConfig: %s", why)
	}
	return cfg, nil
}

// A parser reads messages by their descriptors, one token ahead. After a fault
// it goes on at the next place where a field may begin, so that one fault is
// one line. Its depth is that of the configuration's types, which do not
// recurse; unknown values are skipped without recursion.
type parser struct {
	faults faults
	lex    lexer
	tok    token    // the token to be looked at next
	path   []string // the fields that lead here
}

// next moves to the next token. What is wrong inside the one that it leaves is
// reported now, when the field that it belongs to is known.
func (p *parser) next() {
	for _, w := range p.tok.wrong {
		p.fault(w.at, "%s", w.text)
	}
	p.tok = p.lex.next()
}

// fault reports a fault in the field that is being read.
func (p *parser) fault(at int, format string, args ...any) {
	p.faults.add(at, strings.Join(p.path, "."), format, args...)
	if p.faults.more {
		p.lex.pos = len(p.lex.text) // enough: nothing more is read
	}
}

// A record is what fields are put into: a message, or an entry of a map.
type record interface {
	Descriptor() protoreflect.MessageDescriptor
	NewField(protoreflect.FieldDescriptor) protoreflect.Value
	Mutable(protoreflect.FieldDescriptor) protoreflect.Value
	Set(protoreflect.FieldDescriptor, protoreflect.Value)
}

// message reads fields into m until the mark that closes open, or until the
// end of the text where open is nil.
func (p *parser) message(m record, open *token) {
	seen := seenFields{}
	separable := false // a comma or semicolon may stand here
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
		p.values(func(int) { p.entry(fd, m.Mutable(fd).Map()) }, true)
	case fd.IsList():
		p.list(fd, m.Mutable(fd).List())
	default:
		first := p.once(fd, seen, name)
		if v, ok := p.value(fd, func() protoreflect.Value { return m.NewField(fd) }); ok && first {
			m.Set(fd, v)
		}
	}
}

// seenFields are the places of the single fields and oneofs that a message has.
type seenFields map[protoreflect.FullName]token

// once reports a single field that comes again, and a second member of a oneof.
func (p *parser) once(fd protoreflect.FieldDescriptor, seen seenFields, name token) bool {
	if before, twice := seen[fd.FullName()]; twice {
		p.fault(name.at, "%s is given twice, first %s; expected it once", name, p.where(&before))
		return false
	}
	seen[fd.FullName()] = name
	if one := fd.ContainingOneof(); one != nil {
		if before, twice := seen[one.FullName()]; twice {
			p.fault(name.at, "%s cannot stand beside %s, which is %s; expected one of them", name, before, p.where(&before))
			return false
		}
		seen[one.FullName()] = name
	}
	return true
}

// list reads the values of a repeated field: one, or several in brackets.
func (p *parser) list(fd protoreflect.FieldDescriptor, list protoreflect.List) {
	field := p.path[len(p.path)-1]
	defer func() { p.path[len(p.path)-1] = field }()
	p.values(func(int) {
		p.path[len(p.path)-1] = fmt.Sprintf("%s[%d]", field, list.Len())
		v, ok := p.value(fd, list.NewElement)
		if !ok {
			v = list.NewElement() // keeps the numbers of those that follow
		}
		list.Append(v)
	}, fd.Message() != nil)
}

// values calls one for each value that follows: for all in a list in brackets,
// else once.
func (p *parser) values(one func(i int), messages bool) {
	if !p.tok.is('[') {
		one(0)
		return
	}
	open := p.tok
	p.next()
	if p.tok.is(']') {
		p.next()
		return
	}
	for i := 0; ; i++ {
		one(i)
		switch {
		case p.tok.is(']'):
			p.next()
			return
		case p.tok.is(','):
			p.next()
			if p.tok.is(']') {
				p.fault(p.tok.at, "a list cannot end in a comma; expected another value, or ] without the comma")
				p.next()
				return
			}
		case p.tok.isScalar() && !messages && !p.atField(), p.tok.isAny("{<") && messages:
			p.fault(p.tok.at, "',' is missing before %s", p.tok)
		default:
			p.fault(p.tok.at, "expected ',' or the ] of the list that begins %s, got %s", p.where(&open), p.tok)
			p.leaveList()
			return
		}
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

// atField reports whether the token looks like the name of a field.
func (p *parser) atField() bool {
	c := p.lex.peek()
	return p.tok.kind == tokenWord && (c == ':' || c == '{' || c == '<')
}

// value reads one value of a field; fresh makes the message for it.
func (p *parser) value(fd protoreflect.FieldDescriptor, fresh func() protoreflect.Value) (protoreflect.Value, bool) {
	if fd.Message() != nil {
		v := fresh()
		return v, p.body(fd, v.Message())
	}
	switch {
	case p.tok.isAny("{<["):
		p.fault(p.tok.at, "expected %s, got %s", wanted(fd), map[bool]string{true: "a list", false: "a message"}[p.tok.is('[')])
		p.skipBalanced()
		return protoreflect.Value{}, false
	case p.tok.kind == tokenBad:
		p.fault(p.tok.at, "expected %s, got %s", wanted(fd), p.tok)
		p.next()
		return protoreflect.Value{}, false
	case !p.tok.isScalar() || p.atField():
		p.fault(p.tok.at, "the value is missing; expected %s, got %s", wanted(fd), p.tok)
		return protoreflect.Value{}, false
	}
	t := p.tok
	p.next()
	v, ok := scalar(fd, t)
	switch {
	case len(t.wrong) > 0:
		return v, false // next has said so
	case ok:
		return v, true
	case t.kind == tokenString && fd.Kind() == protoreflect.StringKind:
		p.fault(t.at, "the escapes of the string do not make UTF-8; expected text")
	case t.kind == tokenWord && fd.Kind() == protoreflect.EnumKind:
		p.fault(t.at, "unknown value %s; expected %s", t, wanted(fd))
	default:
		p.fault(t.at, "expected %s, got %s", wanted(fd), t)
	}
	return v, false
}

// body reads the braces of a message and what is in them.
func (p *parser) body(fd protoreflect.FieldDescriptor, m record) bool {
	if p.tok.isAny("{<") {
		open := p.tok
		p.next()
		p.message(m, &open)
		return true
	}
	switch {
	case p.tok.is('['):
		p.fault(p.tok.at, "expected %s, got a list", wanted(fd))
		p.skipBalanced()
	case p.tok.isScalar() && !p.atField():
		p.fault(p.tok.at, "expected %s, got %s", wanted(fd), p.tok)
		p.next()
	default:
		p.fault(p.tok.at, "the value is missing; expected %s, got %s", wanted(fd), p.tok)
	}
	return false
}

// entry reads one entry of a map, which is written as a message.
func (p *parser) entry(fd protoreflect.FieldDescriptor, m protoreflect.Map) {
	e := &mapEntry{field: fd, into: m}
	if p.body(fd, e) {
		e.store()
	}
}

// where says where a token is.
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
