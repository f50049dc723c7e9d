package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// list reads the values of a repeated field: one, or several in brackets.
func (p *parser) list(fd protoreflect.FieldDescriptor, list protoreflect.List) {
	field := p.path[len(p.path)-1]
	defer func() { p.path[len(p.path)-1] = field }()
	p.values(func() {
		p.path[len(p.path)-1] = fmt.Sprintf("%s[%d]", field, list.Len())
		v, ok := p.value(fd, list.NewElement)
		if !ok {
			v = list.NewElement() // keeps the numbers of those that follow
		}
		list.Append(v)
	}, fd.Message() != nil)
}

// values calls one for each value that follows: for all in a bracketed list,
// otherwise once.
func (p *parser) values(one func(), messages bool) {
	if !p.tok.is('[') {
		one()
		return
	}
	open := p.tok
	p.next()
	if p.tok.is(']') {
		p.next()
		return
	}
	for {
		one()
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
	case p.tok.isAny("{<"):
		p.fault(p.tok.at, "expected %s, got a message", wanted(fd))
		p.skipBalanced()
		return protoreflect.Value{}, false
	case p.tok.is('['):
		p.fault(p.tok.at, "expected %s, got a list", wanted(fd))
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
		return v, false // next has reported it
	case ok:
		return v, true
	case t.kind == tokenString && fd.Kind() == protoreflect.StringKind:
		p.fault(t.at, "the escapes of the string do not make UTF-8; expected text")
	case t.kind == tokenWord && fd.Kind() == protoreflect.EnumKind:
		p.fault(t.at, "unknown value %s; %sexpected %s", t, nearEnum(fd, t.raw), wanted(fd))
	default:
		p.fault(t.at, "expected %s, got %s", wanted(fd), t)
	}
	return v, false
}

// body reads a message in braces.
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

// nearEnum suggests the value that was probably meant, such as TYPE_FP32 for
// FP32; "" when there is none.
func nearEnum(fd protoreflect.FieldDescriptor, word string) string {
	values := fd.Enum().Values()
	for i := range values.Len() {
		if name := string(values.Get(i).Name()); strings.HasSuffix(name, "_"+strings.ToUpper(word)) {
			return "did you mean " + name + "? "
		}
	}
	return ""
}
