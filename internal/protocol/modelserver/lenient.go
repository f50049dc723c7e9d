package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The members of a JSON body that are numbers, those that are true or false, and
// those that are text. Others are not known.
var (
	numberMembers = []string{"batch_size", "max_batch_delay", "initial_workers", "response_timeout", "startup_timeout"}
	truthMembers  = []string{"synchronous", "s3_sse_kms"}
	textMembers   = []string{"url", "model_name", "handler", "runtime", "preload_model"}
)

// parseLenient reads the JSON object of a registration the way the originals' parser
// does: strings may have single quotes or none, numbers and booleans may be strings,
// and there may be comments. Null members count as absent, unknown ones are skipped,
// and of equal names the last counts. An empty text and null are an empty object.
func parseLenient(text []byte) ([]pair, error) {
	p := &lenient{text: text}
	if p.space(); p.at == len(p.text) {
		return nil, nil
	}
	if v, err := p.value(); err != nil {
		return nil, err
	} else if v.kind == "NULL" {
		return nil, p.finish()
	} else if v.kind != "BEGIN_OBJECT" {
		return nil, p.state("BEGIN_OBJECT", v)
	}
	var list []pair
	for first := true; ; first = false {
		p.space()
		c := p.next()
		switch {
		case c == '}' && first:
			return list, p.finish()
		case c == 0:
			return nil, p.end()
		case c == '}' || strings.IndexByte(",;:=", c) >= 0:
			return nil, p.malformed("Expected name")
		}
		p.at--
		name, err := p.value()
		if err != nil {
			return nil, err
		}
		p.path = "." + name.text
		p.space()
		switch c := p.next(); {
		case c == 0:
			return nil, p.end()
		case c == '=' && p.at < len(p.text) && p.text[p.at] == '>':
			p.at++
		case c != ':' && c != '=':
			return nil, p.malformed("Expected ':'")
		}
		p.space()
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		if v.text, err = p.check(name.text, v); err != nil {
			return nil, err
		}
		if v.kind != "NULL" && known(name.text) {
			list = slices.DeleteFunc(list, func(o pair) bool { return o.name == name.text })
			list = append(list, pair{name.text, v.text})
		}
		p.space()
		switch c := p.next(); c {
		case '}':
			return list, p.finish()
		case ',', ';':
		case 0:
			return nil, p.end()
		default:
			return nil, p.malformed("Unterminated object")
		}
	}
}

// known reports whether a registration has a member of that name.
func known(name string) bool {
	return slices.Contains(numberMembers, name) || slices.Contains(truthMembers, name) || slices.Contains(textMembers, name)
}

type lenient struct {
	text []byte
	at   int
	path string // of the member that is read, after $
}

// A token is a value as it is written. Of an object or a list there is only the
// kind.
type token struct{ kind, text string }

func (p *lenient) next() byte {
	if p.at >= len(p.text) {
		p.at = len(p.text) + 1
		return 0
	}
	p.at++
	return p.text[p.at-1]
}

// space skips what stands between values.
func (p *lenient) space() {
	for p.at < len(p.text) {
		rest := p.text[p.at:]
		end := []byte("\n")
		switch {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			p.at++
			continue
		case rest[0] == '#', bytes.HasPrefix(rest, []byte("//")):
		case bytes.HasPrefix(rest, []byte("/*")):
			end = []byte("*/")
		default:
			return
		}
		n := bytes.Index(rest, end)
		if n < 0 {
			p.at = len(p.text)
			return
		}
		p.at += n + len(end)
	}
}

// where says how far the text is read.
func (p *lenient) where() string {
	at := min(p.at, len(p.text))
	line := bytes.Count(p.text[:at], []byte("\n"))
	return fmt.Sprintf(" at line %d column %d path $%s", line+1, at-bytes.LastIndexByte(p.text[:at], '\n'), p.path)
}

func (p *lenient) malformed(what string) error {
	return errors.New("com.google.gson.stream.MalformedJsonException: " + what + p.where())
}

func (p *lenient) end() error { return errors.New("java.io.EOFException: End of input" + p.where()) }

// state is the error of a value of another kind.
func (p *lenient) state(want string, v token) error {
	if v.kind == "STRING" && want == "BEGIN_OBJECT" && len(v.text) > 0 {
		p.at = max(p.at-len(v.text)-1, 0) // the originals stop before it
	}
	return errors.New("java.lang.IllegalStateException: Expected " + want + " but was " + v.kind + p.where())
}

// finish checks that nothing follows the object.
func (p *lenient) finish() error {
	p.path = ""
	if p.space(); p.at < len(p.text) {
		p.at++
		return p.malformed("Use JsonReader.setLenient(true) to accept malformed JSON")
	}
	return nil
}

// check checks the value of a member and returns it as text.
func (p *lenient) check(name string, v token) (string, error) {
	nested := v.kind == "BEGIN_OBJECT" || v.kind == "BEGIN_ARRAY"
	switch {
	case v.kind == "NULL":
	case slices.Contains(numberMembers, name):
		if nested || v.kind == "BOOLEAN" {
			return "", p.state("an int", v)
		}
		return p.number(v.text)
	case slices.Contains(truthMembers, name):
		if nested || v.kind == "NUMBER" {
			return "", p.state("a boolean", v)
		}
	case nested && slices.Contains(textMembers, name):
		return "", p.state("a string", v)
	case nested:
		return "", p.skip()
	}
	return v.text, nil
}

// number returns a whole number of 32 bits.
func (p *lenient) number(text string) (string, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	const wrong = "java.lang.NumberFormatException: "
	switch {
	case text == "":
		return "", errors.New(wrong + "empty String")
	case err != nil:
		return "", fmt.Errorf("%sFor input string: %q", wrong, text)
	case f != math.Trunc(f) || f < math.MinInt32 || f > math.MaxInt32:
		return "", errors.New(wrong + "Expected an int but was " + text + p.where())
	}
	return strconv.Itoa(int(f)), nil
}

// skip skips an object or a list whose first character was read.
func (p *lenient) skip() error {
	for depth := 1; depth > 0; {
		p.space()
		switch c := p.next(); c {
		case 0:
			return p.end()
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"', '\'':
			if _, err := p.quoted(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// value reads a string, quoted or not, or the first character of an object or list.
func (p *lenient) value() (v token, err error) {
	switch c := p.next(); c {
	case 0:
		return v, p.end()
	case '{':
		return token{kind: "BEGIN_OBJECT"}, nil
	case '[':
		return token{kind: "BEGIN_ARRAY"}, nil
	case '"', '\'':
		text, err := p.quoted(c)
		return token{"STRING", text}, err
	}
	begin := p.at - 1
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,:;={}[]", p.text[p.at]) < 0 {
		p.at++
	}
	text := string(p.text[begin:p.at])
	if strings.IndexByte(",:;=}]", text[0]) >= 0 {
		return v, p.malformed("Expected value")
	}
	v = token{"STRING", text}
	switch _, err := strconv.ParseFloat(text, 64); {
	case strings.EqualFold(text, "null"):
		v.kind = "NULL"
	case strings.EqualFold(text, "true"), strings.EqualFold(text, "false"):
		v.kind = "BOOLEAN"
	case err == nil && text[0] <= '9' && text[0] != '+':
		v.kind = "NUMBER"
	}
	return v, nil
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
			return nil, p.malformed("Invalid escape sequence")
		}
		p.at += 4
		return utf8.AppendRune(b, rune(n)), nil
	default:
		return append(b, c), nil
	}
}
