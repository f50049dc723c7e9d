package input

import (
	"errors"
	"fmt"
	"slices"
)

// parseExpected reads "validation_data": for each step of the data the outputs
// that its answer must have.
func parseExpected(outputs []Port, streams [][]Step, v any) (expected [][]map[string][]byte, err error) {
	err = eachStream(v, `"validation_data"`, func(steps []any) error {
		var stream []map[string][]byte
		for i, step := range steps {
			values, err := parseOutputs(outputs, step)
			if err != nil {
				return fmt.Errorf(`"validation_data" step %d: %w`, i+1, err)
			}
			stream = append(stream, values)
		}
		expected = append(expected, stream)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(expected) != len(streams) {
		return nil, fmt.Errorf(`"validation_data" has %d streams, "data" has %d`, len(expected), len(streams))
	}
	for i := range streams {
		if len(expected[i]) != len(streams[i]) {
			return nil, fmt.Errorf(`stream %d has %d steps in "validation_data" and %d in "data"`, i+1, len(expected[i]), len(streams[i]))
		}
	}
	return expected, nil
}

// parseOutputs reads the outputs of one step. Outputs that are not named may
// have any value.
func parseOutputs(outputs []Port, v any) (map[string][]byte, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not an object with an entry for each output")
	}
	values := make(map[string][]byte)
	for name, v := range object {
		i := slices.IndexFunc(outputs, func(p Port) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the model has no output %q", name)
		}
		content := v
		if inner, ok := v.(map[string]any); ok {
			if c, ok := inner["content"]; ok {
				content = c
			}
		}
		data, err := parseContent(&outputs[i], content)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", name, err)
		}
		values[name] = data
	}
	return values, nil
}

// Answers returns the expected answer to each of Requests; nil when any answer
// is good.
func (s *Set) Answers(batch int) []map[string][]byte {
	if s.Expected == nil {
		return nil
	}
	var list []map[string][]byte
	for _, stream := range s.Expected {
		for first := 0; ; {
			rows := make([]map[string][]byte, batch)
			for r := range rows {
				rows[r] = stream[(first+r)%len(stream)]
			}
			list = append(list, joinAnswers(rows))
			if first = (first + batch) % len(stream); first == 0 {
				break
			}
		}
	}
	return list
}

// joinAnswers returns the outputs of a batch. Outputs that a row does not name
// may have any value.
func joinAnswers(rows []map[string][]byte) map[string][]byte {
	answer := make(map[string][]byte)
next:
	for name := range rows[0] {
		var whole []byte
		for _, row := range rows {
			data, ok := row[name]
			if !ok {
				continue next
			}
			whole = append(whole, data...)
		}
		answer[name] = whole
	}
	return answer
}
