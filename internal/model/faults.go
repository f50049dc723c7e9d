package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/spelling"
	"shoal/internal/status"
)

// maxFaults bounds the errors that are reported for one text. A file with more
// is not a configuration, and the rest would hide the first.
const maxFaults = 50

// faults collects the errors in a text, in the order in which they are found.
type faults struct {
	path string
	text []byte
	list []Fault
	more bool // there were more than maxFaults
}

// A Fault is one error in a configuration.
type Fault struct {
	Line, Column int // in the text, from 1 on; 0 when it is not in one place
	Text         string
}

// An InvalidError has all errors in a configuration.
type InvalidError struct {
	error  // all on one line, or with their positions on a line each
	Faults []Fault
	// Late means that they are all in tensors and instance groups, which Triton
	// checks when it loads a version rather than when it reads the configuration.
	Late bool
}

// Unwrap returns the error with its code.
func (e *InvalidError) Unwrap() error { return e.error }

// add adds an error at an offset of the text; field may be empty.
func (f *faults) add(offset int, field, format string, args ...any) {
	if len(f.list) == maxFaults {
		f.more = true
		return
	}
	line, col := f.position(offset)
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	f.list = append(f.list, Fault{line, col, text})
}

// position returns the line and the column, in characters, of an offset.
func (f *faults) position(offset int) (line, col int) {
	before := f.text[:offset]
	line = bytes.Count(before, []byte("\n")) + 1
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	return line, utf8.RuneCount(before) + 1
}

// err returns all errors as one, nil when there are none.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	var lines []string
	for _, at := range f.list {
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s", f.path, at.Line, at.Column, at.Text))
	}
	if f.more {
		lines = append(lines, fmt.Sprintf("%s: more than %d faults; the others are not shown", f.path, maxFaults))
	}
	return &InvalidError{error: status.Errorf(status.InvalidArgument, "%s", strings.Join(lines, "\n")), Faults: f.list}
}

// problems collects the errors in a whole configuration.
type problems []string

func (p *problems) add(format string, args ...any) {
	*p = append(*p, fmt.Sprintf(format, args...))
}

// err returns the problems as one error on one line, so that a single one reads
// like Triton's; nil when there are none. late is the error's Late.
func (p problems) err(late bool) error {
	if len(p) == 0 {
		return nil
	}
	var list []Fault
	for _, text := range p {
		list = append(list, Fault{Text: text})
	}
	return &InvalidError{error: status.Errorf(status.InvalidArgument, "%s", strings.Join(p, "; ")), Faults: list, Late: late}
}

// fieldHint lists the fields of a message: those with similar names, or all of
// them.
func fieldHint(desc protoreflect.MessageDescriptor, name string) string {
	var all, near []string
	for i := range desc.Fields().Len() {
		all = append(all, desc.Fields().Get(i).TextName())
	}
	near = nearest(name, all)
	if len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	if len(all) == 0 {
		return string(desc.Name()) + " has no fields"
	}
	return fmt.Sprintf("the fields of %s are %s", desc.Name(), strings.Join(all, ", "))
}

// nearest returns up to three of the names that are similar to name, the most
// similar first.
func nearest(name string, names []string) []string {
	limit := max(2, len(name)/3)
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, n := range names {
		if d := spelling.Distance(name, n); d <= limit {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
	var out []string
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return out
}
