package modelserver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseLenient reads a JSON object of plain values the way the originals' parser
// does: strings may have single quotes or none, and numbers and booleans may be
// strings. Null members count as absent. Values that are objects or lists are an
// error.
func parseLenient(text []byte) ([]pair, error) {
	p := &lenient{text: text}
	p.space()
	if p.at == len(p.text) {
		return nil, nil
	}
	if p.next() != '{' {
		return nil, p.fault("Expected BEGIN_OBJECT")
	}
	var list []pair
	for {
		p.space()
		switch c := p.next(); {
		case c == '}':
			p.space()
			if p.at < len(p.text) {
				return nil, p.fault("Expected the end")
			}
			return list, nil
		case c == ',' || c == ';':
			continue
		case c == 0:
			return nil, p.end()
		}
		p.at--
		name, _, err := p.value()
		if err != nil {
			return nil, err
		}
		p.path = name
		p.space()
		if c := p.next(); c == 0 {
			return nil, p.end()
		} else if c != ':' && c != '=' {
			return nil, p.fault("Expected ':'")
		}
		p.space()
		value, null, err := p.value()
		if err != nil {
			return nil, err
		}
		if !null {
			list = append(list, pair{name, value})
		}
		p.space()
		if p.at < len(p.text) && strings.IndexByte(",;}", p.text[p.at]) < 0 {
			return nil, p.fault("Unterminated object")
		}
	}
}

type lenient struct {
	text []byte
	at   int
	path string // of the member that is read
}

func (p *lenient) next() byte {
	if p.at >= len(p.text) {
		p.at = len(p.text) + 1
		return 0
	}
	p.at++
	return p.text[p.at-1]
}

func (p *lenient) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *lenient) fault(what string) error {
	return fmt.Errorf("%s at line 1 column %d", what, min(p.at, len(p.text))+1)
}

func (p *lenient) end() error {
	return fmt.Errorf("java.io.EOFException: End of input at line 1 column %d path $.%s", len(p.text)+1, p.path)
}

var errNested = fmt.Errorf("%s", textNested)

// textNested is what the originals' parser says.
const textNested = "Expected a string but was BEGIN_OBJECT"

// value reads a string, quoted or not; null says that it is the word null.
func (p *lenient) value() (text string, null bool, err error) {
	switch c := p.next(); c {
	case 0:
		return "", false, p.end()
	case '{', '[':
		return "", false, errNested
	case '"', '\'':
		text, err = p.quoted(c)
		return text, false, err
	}
	begin := p.at - 1
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,:;={}[]", p.text[p.at]) < 0 {
		p.at++
	}
	text = string(p.text[begin:p.at])
	if strings.IndexByte(",:;=}]", text[0]) >= 0 {
		return "", false, p.fault("Expected value")
	}
	return text, text == "null", nil
}

func (p *lenient) quoted(q byte) (string, error) {
	var b []byte
	for {
		c := p.next()
		switch c {
		case 0:
			if p.at > len(p.text) {
				return "", p.end()
			}
		case q:
			return string(b), nil
		case '\\':
			var err error
			if b, err = p.escape(b); err != nil {
				return "", err
			}
			continue
		}
		b = append(b, c)
	}
}

func (p *lenient) escape(b []byte) ([]byte, error) {
	switch c := p.next(); c {
	case 0:
		return nil, p.end()
	case 'n':
		return append(b, '\n'), nil
	case 't':
		return append(b, '\t'), nil
	case 'r':
		return append(b, '\r'), nil
	case 'b':
		return append(b, '\b'), nil
	case 'f':
		return append(b, '\f'), nil
	case 'u':
		if p.at+4 > len(p.text) {
			return nil, p.end()
		}
		n, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 32)
		if err != nil {
			return nil, p.fault("Invalid escape sequence")
		}
		p.at += 4
		return utf8.AppendRune(b, rune(n)), nil
	default:
		return append(b, c), nil
	}
}
