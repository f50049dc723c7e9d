package modelstore

import (
	"fmt"
	"strconv"
	"strings"
)

// parseYAML reads the part of YAML that models' configurations use: nested maps and
// lists in blocks, lists and maps in brackets on one line, plain and quoted scalars
// and comments. It never makes anything but maps, lists, strings, numbers, booleans
// and nil: there are no tags and no aliases. What it cannot read is an error, with
// what came before it.
func parseYAML(text []byte) (map[string]any, error) {
	p := &yamlParser{}
	for n, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		content = strings.TrimRight(stripComment(content), " \t")
		if content == "" || content == "---" || content == "..." {
			continue
		}
		p.lines = append(p.lines, yamlLine{n + 1, indent, content})
	}
	if len(p.lines) == 0 {
		return nil, nil
	}
	v, err := p.block(p.lines[0].indent, 0)
	m, ok := v.(map[string]any)
	if err == nil && !ok {
		err = fmt.Errorf("line %d: want key: value", p.lines[0].number)
	}
	if err == nil && p.at < len(p.lines) {
		err = fmt.Errorf("line %d: unexpected indentation", p.lines[p.at].number)
	}
	return m, err
}

type yamlLine struct {
	number, indent int
	text           string
}

type yamlParser struct {
	lines []yamlLine
	at    int
}

// maxYAMLDepth bounds nesting.
const maxYAMLDepth = 32

// block reads the lines of one indentation.
func (p *yamlParser) block(indent, depth int) (any, error) {
	if depth > maxYAMLDepth {
		return nil, fmt.Errorf("line %d: too deep", p.lines[p.at].number)
	}
	if text := p.lines[p.at].text; text == "-" || strings.HasPrefix(text, "- ") {
		return p.list(indent, depth)
	}
	m := make(map[string]any)
	for p.at < len(p.lines) && p.lines[p.at].indent == indent {
		line := p.lines[p.at]
		key, rest, ok := cutKey(line.text)
		if !ok {
			return m, fmt.Errorf("line %d: want key: value", line.number)
		}
		p.at++
		value, err := p.value(rest, indent, depth, line.number)
		m[key] = value
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// value reads what follows a key: the rest of its line, or a block below it.
func (p *yamlParser) value(rest string, indent, depth, number int) (any, error) {
	if rest != "" {
		return flow(rest, number)
	}
	if p.at == len(p.lines) {
		return nil, nil
	}
	next := p.lines[p.at]
	isList := next.text == "-" || strings.HasPrefix(next.text, "- ")
	if next.indent > indent || next.indent == indent && isList {
		return p.block(next.indent, depth+1)
	}
	return nil, nil
}

func (p *yamlParser) list(indent, depth int) (any, error) {
	list := []any{}
	for p.at < len(p.lines) && p.lines[p.at].indent == indent {
		line := &p.lines[p.at]
		rest, ok := strings.CutPrefix(line.text, "-")
		if !ok || rest != "" && rest[0] != ' ' {
			break
		}
		inner := strings.TrimLeft(rest, " ")
		if _, _, isMap := cutKey(inner); isMap && inner[0] != '{' && inner[0] != '[' {
			// A map that begins on the line of its dash.
			line.indent, line.text = indent+1+len(rest)-len(inner), inner
			v, err := p.block(line.indent, depth+1)
			list = append(list, v)
			if err != nil {
				return list, err
			}
			continue
		}
		p.at++
		v, err := p.value(inner, indent, depth, line.number)
		list = append(list, v)
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// cutKey splits "key: value".
func cutKey(text string) (key, rest string, ok bool) {
	if text == "" {
		return "", "", false
	}
	if q := text[0]; q == '"' || q == '\'' {
		end := strings.IndexByte(text[1:], q)
		if end < 0 {
			return "", "", false
		}
		key, text = text[1:1+end], strings.TrimLeft(text[2+end:], " ")
		if rest, ok = strings.CutPrefix(text, ":"); !ok {
			return "", "", false
		}
		return key, strings.TrimSpace(rest), true
	}
	if key, rest, ok = strings.Cut(text, ": "); ok {
		return strings.TrimSpace(key), strings.TrimSpace(rest), true
	}
	key, ok = strings.CutSuffix(text, ":")
	return strings.TrimSpace(key), "", ok
}

// flow reads a value on one line.
func flow(text string, number int) (any, error) {
	v, rest, err := flowValue(text, 0)
	if err == nil && strings.TrimSpace(rest) != "" {
		err = fmt.Errorf("%q is left over", rest)
	}
	if err != nil {
		return v, fmt.Errorf("line %d: %w", number, err)
	}
	return v, nil
}

func flowValue(text string, depth int) (v any, rest string, err error) {
	text = strings.TrimLeft(text, " ")
	switch {
	case depth > maxYAMLDepth:
		return nil, "", fmt.Errorf("too deep")
	case text == "":
		return nil, "", nil
	case text[0] == '[', text[0] == '{':
		return flowCollection(text, depth)
	case text[0] == '"', text[0] == '\'':
		return quoted(text)
	case strings.ContainsRune("&*!|>%@`", rune(text[0])):
		return nil, "", fmt.Errorf("%q is not supported", text)
	}
	end := len(text)
	if depth > 0 {
		if i := strings.IndexAny(text, ",]}"); i >= 0 {
			end = i
		}
	}
	return scalar(strings.TrimSpace(text[:end])), text[end:], nil
}

func flowCollection(text string, depth int) (any, string, error) {
	isMap := text[0] == '{'
	list, m := []any{}, map[string]any{}
	done := func(rest string) (any, string, error) {
		if isMap {
			return m, rest, nil
		}
		return list, rest, nil
	}
	rest := strings.TrimLeft(text[1:], " ")
	for {
		if rest == "" {
			return nil, "", fmt.Errorf("%q does not end", text)
		}
		if rest[0] == ']' && !isMap || rest[0] == '}' && isMap {
			return done(rest[1:])
		}
		key := ""
		if isMap {
			i := strings.IndexByte(rest, ':')
			if i < 0 {
				return nil, "", fmt.Errorf("%q: want key: value", text)
			}
			key, rest = strings.Trim(strings.TrimSpace(rest[:i]), `"'`), rest[i+1:]
		}
		v, after, err := flowValue(rest, depth+1)
		if err != nil {
			return nil, "", err
		}
		if isMap {
			m[key] = v
		} else {
			list = append(list, v)
		}
		rest = strings.TrimLeft(after, " ")
		if next, ok := strings.CutPrefix(rest, ","); ok {
			rest = strings.TrimLeft(next, " ")
		} else if rest == "" || isMap != (rest[0] == '}') || !isMap && rest[0] != ']' {
			return nil, "", fmt.Errorf("%q does not end", text)
		}
	}
}

func quoted(text string) (any, string, error) {
	q := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && q == '"' && i+1 < len(text):
			i++
			b.WriteByte(unescaped(text[i]))
		case c == q && q == '\'' && i+1 < len(text) && text[i+1] == q:
			i++
			b.WriteByte(q)
		case c == q:
			return b.String(), text[i+1:], nil
		default:
			b.WriteByte(c)
		}
	}
	return nil, "", fmt.Errorf("%q does not end", text)
}

func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	}
	return c
}

// scalar gives a plain scalar its type.
func scalar(text string) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE", "yes", "Yes", "on", "On":
		return true
	case "false", "False", "FALSE", "no", "No", "off", "Off":
		return false
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, ".eE") && !strings.ContainsAny(text, "xXpP") {
		return f
	}
	return text
}

// stripComment removes a comment from the end of a line.
func stripComment(text string) string {
	var q byte
	for i := range len(text) {
		switch c := text[i]; {
		case q != 0:
			if c == q {
				q = 0
			}
		case c == '"' || c == '\'':
			if i == 0 || strings.IndexByte(" [{,:-", text[i-1]) >= 0 {
				q = c
			}
		case c == '#' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t'):
			return text[:i]
		}
	}
	return text
}
