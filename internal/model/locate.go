package model

import (
	"bytes"
	"regexp"
)

// Locate returns the line of a configuration's text that an error is about: the
// first one that has the most of the names that the error quotes, which count
// twice, or that are fields. It returns 0 when no line has any.
func Locate(text []byte, fault string) int {
	type name struct {
		text   []byte
		weight int
	}
	var wanted []name
	for _, m := range namePattern.FindAllStringSubmatch(fault, -1) {
		if m[1] != "" {
			wanted = append(wanted, name{[]byte(m[1]), 2})
		} else {
			wanted = append(wanted, name{[]byte(m[0]), 1})
		}
	}
	best, line, number := 0, 0, 0
	for row := range bytes.Lines(text) {
		number++
		row, _, _ = bytes.Cut(row, []byte("#"))
		words := wordPattern.FindAll(row, -1)
		n := 0
		for _, name := range wanted {
			for _, w := range words {
				if bytes.Equal(bytes.Trim(w, `"'`), name.text) {
					n += name.weight
					break
				}
			}
		}
		if n > best {
			best, line = n, number
		}
	}
	return line
}

var (
	namePattern = regexp.MustCompile(`'([^']+)'|[a-z]+(?:_[a-z0-9]+)+`)
	wordPattern = regexp.MustCompile(`"[^"]*"|'[^']*'|[A-Za-z0-9_.-]+`)
)
