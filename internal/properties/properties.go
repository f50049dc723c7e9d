// Package properties reads the text of Java's properties files, in which Multi
// Model Server and TorchServe have their configuration.
package properties

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse returns the values by key; of a repeated key the last counts. Lines end in
// a backslash to go on in the next, begin with # or ! for comments, and have =, : or
// a space between key and value.
func Parse(text string) (map[string]string, error) {
	values := make(map[string]string)
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for n := 0; n < len(lines); n++ {
		line := strings.TrimLeft(lines[n], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		begin := n
		for continues(line) && n+1 < len(lines) {
			n++
			line = line[:len(line)-1] + strings.TrimLeft(lines[n], " \t\f")
		}
		if continues(line) {
			line = line[:len(line)-1]
		}
		key, value := cut(line)
		var err error
		if key, err = unescape(key); err == nil {
			value, err = unescape(value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", begin+1, err)
		}
		values[key] = value
	}
	return values, nil
}

// continues reports whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// cut splits a line after its key.
func cut(line string) (key, value string) {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':':
			return line[:i], strings.TrimLeft(line[i+1:], " \t\f")
		case ' ', '\t', '\f':
			rest := strings.TrimLeft(line[i:], " \t\f")
			if rest != "" && (rest[0] == '=' || rest[0] == ':') {
				rest = strings.TrimLeft(rest[1:], " \t\f")
			}
			return line[:i], rest
		}
	}
	return line, ""
}

func unescape(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var b []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			b = append(b, c)
			continue
		}
		i++
		switch c = text[i]; c {
		case 't':
			b = append(b, '\t')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 'f':
			b = append(b, '\f')
		case 'u':
			if i+4 >= len(text) {
				return "", fmt.Errorf(`malformed \uxxxx in %q`, text)
			}
			n, err := strconv.ParseUint(text[i+1:i+5], 16, 32)
			if err != nil {
				return "", fmt.Errorf(`malformed \uxxxx in %q`, text)
			}
			b = utf8.AppendRune(b, rune(n))
			i += 4
		default:
			b = append(b, c)
		}
	}
	return string(b), nil
}

// textVariable is the text that users of the originals know.
const textVariable = "Invalid Environment Variable"

// Expand replaces $$NAME$$ by the variable of that name.
func Expand(value string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(value, "$$")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, rest, ok := strings.Cut(after, "$$")
		if !ok {
			b.WriteString("$$" + after)
			return b.String(), nil
		}
		v, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("%s %s", textVariable, name)
		}
		b.WriteString(v)
		value = rest
	}
}
