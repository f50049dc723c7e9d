package input

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readFolder makes one row from a folder with a file for each input, named like
// it: raw elements, or strings a line each.
func (s *Set) readFolder(ports []*Port, outputs []Port, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var errs []error
	expected := make(map[string][]byte)
	for _, e := range entries {
		if i := slices.IndexFunc(outputs, func(p Port) bool { return p.Name == e.Name() }); i >= 0 {
			data, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err == nil && outputs[i].Type == tensor.Bytes {
				data = lines(data)
			}
			errs = append(errs, err)
			expected[e.Name()] = data
			continue
		}
		if !slices.ContainsFunc(ports, func(p *Port) bool { return p.Name == e.Name() }) {
			s.Notes = append(s.Notes, fmt.Sprintf("%s is not used: the model has neither an input nor an output of that name", filepath.Join(folder, e.Name())))
		}
	}
	step := Step{}
	for _, p := range ports {
		data, err := os.ReadFile(filepath.Join(folder, p.Name))
		if p.Optional && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && p.Type == tensor.Bytes {
			data = lines(data)
		}
		if err == nil {
			err = check(p, p.Shape, data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("input %q: %w", p.Name, err))
		}
		step = append(step, Value{p, p.Shape, data})
	}
	s.Streams = [][]Step{{step}}
	if len(expected) > 0 {
		s.Expected = [][]map[string][]byte{{expected}}
	}
	return errors.Join(errs...)
}

// lines turns text into strings, one per line.
func lines(text []byte) []byte {
	var data []byte
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		data = client.AppendString(data, strings.TrimSuffix(line, "\r"))
	}
	return data
}

// check compares a value's size with its shape.
func check(p *Port, shape tensor.Shape, data []byte) error {
	n, err := elements(p, shape)
	if err != nil {
		return err
	}
	if p.Type == tensor.Bytes {
		list, err := client.Strings(data)
		if err == nil && int64(len(list)) != n {
			err = fmt.Errorf("has %d strings, shape %s wants %d", len(list), shape, n)
		}
		return err
	}
	if want := n * int64(p.Type.Size()); int64(len(data)) != want {
		return fmt.Errorf("has %d bytes, shape %s of type %s wants %d", len(data), shape, p.Type, want)
	}
	return nil
}

// readFiles reads data files and appends the streams of each.
func (s *Set) readFiles(ports []*Port, outputs []Port, paths []string) error {
	s.Read = true
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("--input-data: %w; want random, zero, a folder or JSON files", err)
		}
		streams, expected, err := parse(ports, outputs, data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		s.Streams = append(s.Streams, streams...)
		s.Expected = append(s.Expected, expected...)
	}
	if s.Expected != nil && len(s.Expected) != len(s.Streams) {
		return errors.New(`some of the files have "validation_data" and some have none; give it for all steps or for none`)
	}
	return nil
}

// parse reads a data file: {"data": [step, ...]} or {"data": [[step, ...], ...]},
// and perhaps "validation_data" of the same form with the outputs.
func parse(ports []*Port, outputs []Port, data []byte) (streams [][]Step, expected [][]map[string][]byte, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var file map[string]any
	if err := d.Decode(&file); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return nil, nil, fmt.Errorf("not a JSON object but %s; want {\"data\": [{\"INPUT\": [...]}, ...]}", kind.Value)
		}
		return nil, nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("something follows the JSON object")
	}
	err = eachStream(file["data"], `"data"`, func(steps []any) error {
		stream, err := parseStream(ports, steps)
		streams = append(streams, stream)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if v, ok := file["validation_data"]; ok {
		expected, err = parseExpected(outputs, streams, v)
	}
	return streams, expected, err
}

// eachStream calls do with the steps of each stream in a list of steps, which is
// one stream, or of streams.
func eachStream(v any, name string, do func(steps []any) error) error {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return fmt.Errorf("%s is not a list with steps in it", name)
	}
	if _, nested := list[0].([]any); !nested {
		return do(list)
	}
	for i, v := range list {
		steps, ok := v.([]any)
		if !ok || len(steps) == 0 {
			return fmt.Errorf("stream %d is not a list with steps in it", i+1)
		}
		if err := do(steps); err != nil {
			return fmt.Errorf("stream %d, %w", i+1, err)
		}
	}
	return nil
}

func parseStream(ports []*Port, steps []any) ([]Step, error) {
	var stream []Step
	for i, v := range steps {
		step, err := parseStep(ports, v)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		stream = append(stream, step)
	}
	return stream, nil
}

func parseStep(ports []*Port, v any) (Step, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not an object with an entry for each input (streams and steps cannot be mixed)")
	}
	step := Step{}
	for _, p := range ports {
		v, ok := object[p.Name]
		if !ok {
			if p.Optional {
				continue
			}
			return nil, fmt.Errorf("input %q is missing", p.Name)
		}
		value, err := parseValue(p, v)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", p.Name, err)
		}
		step = append(step, value)
	}
	for name := range object {
		if !slices.ContainsFunc(ports, func(p *Port) bool { return p.Name == name }) {
			return nil, fmt.Errorf("the model has no input %q", name)
		}
	}
	return step, nil
}

// parseValue reads a tensor: a list, {"b64": text}, or either of them as the
// "content" of an object that has a "shape" too.
func parseValue(p *Port, v any) (Value, error) {
	shape, content := p.Shape, v
	if object, ok := v.(map[string]any); ok {
		if inner, ok := object["content"]; ok {
			content = inner
		}
		if dims, ok := object["shape"]; ok {
			var err error
			if shape, err = parseDims(dims); err != nil {
				return Value{}, err
			}
			if !p.Shape.Accepts(shape) {
				return Value{}, fmt.Errorf("shape %s does not fit the model's %s", shape, p.Shape)
			}
		}
	}
	data, err := parseContent(p, content)
	if err == nil {
		err = check(p, shape, data)
	}
	return Value{p, shape, data}, err
}

func parseDims(v any) (tensor.Shape, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New(`"shape" is not a list of numbers`)
	}
	shape := tensor.Shape{}
	for _, d := range list {
		n, ok := d.(json.Number)
		if !ok {
			return nil, errors.New(`"shape" is not a list of numbers`)
		}
		size, err := parseDimension(n.String())
		if err != nil {
			return nil, err
		}
		shape = append(shape, size)
	}
	return shape, nil
}

func parseContent(p *Port, v any) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		text, ok := v["b64"].(string)
		if !ok {
			return nil, errors.New(`an object without "b64" or "content"`)
		}
		return base64.StdEncoding.DecodeString(text)
	case []any:
		return appendList(nil, p.Type, v)
	default:
		return client.AppendElement(nil, p.Type, v)
	}
}

// appendList appends the elements of a list, which may be nested.
func appendList(data []byte, t tensor.Type, list []any) (_ []byte, err error) {
	for i, v := range list {
		if inner, ok := v.([]any); ok {
			data, err = appendList(data, t, inner)
		} else {
			data, err = client.AppendElement(data, t, v)
		}
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i+1, err)
		}
	}
	return data, nil
}
