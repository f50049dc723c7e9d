// Package input makes the tensors that perf sends: random or zero, from JSON
// data files, or from a folder with a file for each input.
//
// A model's inputs are given as Ports. Load reads or makes a Set: streams of
// steps, one row each. Requests joins rows into the tensors of requests. All of
// this is done before any load is sent.
package input

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

// A Port is an input of a model, for one row.
type Port struct {
	Name     string
	Type     tensor.Type
	Shape    tensor.Shape // without the batch dimension; -1 where it varies
	Optional bool
}

// Options say where the values come from.
type Options struct {
	// Sources is "random", "zero", a folder, or one or more JSON files.
	Sources []string
	// Shapes are given for inputs whose shape varies.
	Shapes map[string]tensor.Shape
	// StringLength is how long random strings are; StringData, unless nil, is
	// used instead of them.
	StringLength int
	StringData   *string
	// RawRandom fills with random bytes whatever the type, as perf_analyzer does.
	RawRandom bool
	Seed      uint64
	// Outputs are the model's; data files may have expected values for them.
	Outputs []Port
}

// A Step is the inputs of one row.
type Step []Value

// A Value is the value of one input: its shape without the batch dimension, and
// its encoded elements.
type Value struct {
	Port  *Port
	Shape tensor.Shape
	Data  []byte
}

// A Set is the data of a run.
type Set struct {
	// Streams has at least one stream, each with at least one step.
	Streams [][]Step
	// Read says that the data came from JSON files.
	Read bool
	// Expected has, for each step of Streams, the outputs that its answer must
	// have, encoded, by name; nil when any answer is good.
	Expected [][]map[string][]byte
	// Notes are sentences about what was given and not used.
	Notes []string
}

// Load makes or reads the data for a model with these ports.
func Load(ports []Port, o Options) (*Set, error) {
	s := &Set{}
	shaped, err := s.shape(ports, o.Shapes)
	if err != nil {
		return nil, err
	}
	switch {
	case len(o.Sources) == 0 || slices.Equal(o.Sources, []string{"random"}):
		err = s.generate(shaped, newRandom(o))
	case slices.Equal(o.Sources, []string{"zero"}):
		err = s.generate(shaped, newZero(o))
	case len(o.Sources) == 1 && isFolder(o.Sources[0]):
		err = s.readFolder(shaped, o.Outputs, o.Sources[0])
	default:
		err = s.readFiles(shaped, o.Outputs, o.Sources)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// shape applies the given shapes to the ports that need one.
func (s *Set) shape(ports []Port, shapes map[string]tensor.Shape) ([]*Port, error) {
	var list []*Port
	unused := make(map[string]bool)
	for name := range shapes {
		unused[name] = true
	}
	for _, p := range ports {
		given, ok := shapes[p.Name]
		delete(unused, p.Name)
		switch {
		case !ok:
		case p.Shape.Accepts(given):
			p.Shape = given
		case p.Shape.Fixed():
			s.Notes = append(s.Notes, fmt.Sprintf("--shape %s:%s is not used: the model fixes the shape of %q to %s", p.Name, commas(given), p.Name, p.Shape))
		default:
			return nil, fmt.Errorf("--shape %s:%s does not fit input %q of shape %s", p.Name, commas(given), p.Name, p.Shape)
		}
		list = append(list, &p)
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		s.Notes = append(s.Notes, fmt.Sprintf("--shape %s:%s is not used: the model has no input %q, but %s", name, commas(shapes[name]), name, names(ports)))
	}
	return list, nil
}

func names(ports []Port) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprintf("%q", p.Name))
	}
	return strings.Join(list, ", ")
}

func commas(s tensor.Shape) string { return strings.Trim(s.String(), "[]") }

// ParseShape reads name:d1,d2,... The name may have colons in it.
func ParseShape(text string) (string, tensor.Shape, error) {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return "", nil, fmt.Errorf("%q is not a shape; want name:d1,d2 such as IMAGE:3,224,224", text)
	}
	var shape tensor.Shape
	for _, part := range strings.Split(text[at+1:], ",") {
		d, err := parseDimension(part)
		if err != nil {
			return "", nil, fmt.Errorf("%q is not a shape: %w", text, err)
		}
		shape = append(shape, d)
	}
	return text[:at], shape, nil
}

func parseDimension(text string) (int64, error) {
	var n int64
	for _, c := range []byte(text) {
		if c < '0' || c > '9' || n > 1<<40 {
			return 0, fmt.Errorf("%q is not the size of a dimension; want a number from 1 up", text)
		}
		n = n*10 + int64(c-'0')
	}
	if n == 0 {
		return 0, fmt.Errorf("%q is not the size of a dimension; want a number from 1 up", text)
	}
	return n, nil
}

// Requests joins steps into requests of batch rows. It goes through each stream
// from its beginning until every step was used. A model without a batch
// dimension gets its one row unchanged.
func (s *Set) Requests(batch int, batched bool) ([][]client.Tensor, error) {
	if !batched && batch != 1 {
		return nil, errors.New("the model takes no batches (max_batch_size 0): -b must be 1")
	}
	var list [][]client.Tensor
	for i, stream := range s.Streams {
		for first := 0; ; {
			rows := make([]Step, batch)
			for r := range rows {
				rows[r] = stream[(first+r)%len(stream)]
			}
			tensors, err := join(rows, batched)
			if err != nil {
				return nil, fmt.Errorf("stream %d, rows from step %d on: %w", i+1, first+1, err)
			}
			list = append(list, tensors)
			if first = (first + batch) % len(stream); first == 0 {
				break
			}
		}
	}
	return list, nil
}

// join makes the tensors of one request from its rows.
func join(rows []Step, batched bool) ([]client.Tensor, error) {
	var list []client.Tensor
	for i, v := range rows[0] {
		t := client.Tensor{Name: v.Port.Name, Type: v.Port.Type, Shape: v.Shape, Data: v.Data}
		if batched {
			t.Shape = append(tensor.Shape{int64(len(rows))}, v.Shape...)
		}
		for _, row := range rows[1:] {
			if i >= len(row) || row[i].Port != v.Port || len(row) != len(rows[0]) {
				return nil, errors.New("rows of one request must have the same inputs")
			}
			if !row[i].Shape.Equal(v.Shape) {
				return nil, fmt.Errorf("rows of one request must have the same shape; input %q has %s and %s", v.Port.Name, v.Shape, row[i].Shape)
			}
			t.Data = append(slices.Clip(t.Data), row[i].Data...)
		}
		list = append(list, t)
	}
	return list, nil
}
