package kservehttp

import (
	"slices"
	"strconv"
	"strings"

	"shoal/internal/infer"
)

// A generated is a member of a generate answer: an output, a parameter or, when
// it is neither, a text.
type generated struct {
	name   string
	output *infer.Output
	param  *infer.Param
	text   string
}

// appendGenerated appends resp as the answer to a generate request: its outputs
// and parameters side by side, in the order of their names.
func appendGenerated(b []byte, id string, resp *infer.Response) ([]byte, error) {
	members := make([]generated, 0, len(resp.Outputs)+len(resp.Params)+3)
	for i := range resp.Outputs {
		members = append(members, generated{name: resp.Outputs[i].Name, output: &resp.Outputs[i]})
	}
	for i := range resp.Params {
		members = append(members, generated{name: resp.Params[i].Name, param: &resp.Params[i]})
	}
	members = append(members, generated{name: "model_name", text: resp.Model}, generated{name: "model_version", text: strconv.FormatInt(resp.Version, 10)})
	if id != "" {
		members = append(members, generated{name: "id", text: id})
	}
	slices.SortStableFunc(members, func(x, y generated) int { return strings.Compare(x.name, y.name) })
	members = slices.CompactFunc(members, func(x, y generated) bool { return x.name == y.name })
	b = append(b, '{')
	for i := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, members[i].name), ':')
		var err error
		if b, err = members[i].append(b); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// append appends the member's value. An output of one element stands for itself.
func (m *generated) append(b []byte) ([]byte, error) {
	switch {
	case m.param != nil:
		return appendParam(b, m.param), nil
	case m.output == nil:
		return appendQuoted(b, m.text), nil
	}
	n, _ := m.output.Shape.Elements()
	if n == 1 {
		return appendData(b, m.output)
	}
	b, err := appendData(append(b, '['), m.output)
	return append(b, ']'), err
}
