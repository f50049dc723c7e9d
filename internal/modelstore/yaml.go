package modelstore

import (
	"errors"
	"fmt"
	"math"

	"go.yaml.in/yaml/v3"
)

// maxYAMLDepth is how deep a model's configuration may be nested.
const maxYAMLDepth = 64

// parseYAML reads a model's configuration: maps, lists, strings, numbers, booleans
// and nil, as handlers get them. Tags of programs and aliases are errors.
func parseYAML(text []byte) (map[string]any, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	v, err := plainYAML(document.Content[0], 0)
	if err != nil || v == nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("want key: value")
	}
	return m, nil
}

func plainYAML(n *yaml.Node, depth int) (any, error) {
	switch {
	case depth > maxYAMLDepth:
		return nil, fmt.Errorf("line %d: nested deeper than %d", n.Line, maxYAMLDepth)
	case n.Kind == yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: want a name as key", key.Line)
			}
			v, err := plainYAML(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			m[key.Value] = v
		}
		return m, nil
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			var err error
			if list[i], err = plainYAML(e, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case n.Kind == yaml.ScalarNode:
		return scalarYAML(n)
	}
	return nil, fmt.Errorf("line %d: aliases are not supported; write the value again", n.Line)
}

// scalarYAML returns a scalar with its type. yes, no, on and off are booleans, as
// they are for the originals.
func scalarYAML(n *yaml.Node) (any, error) {
	if n.Style == 0 {
		switch n.Value {
		case "yes", "Yes", "YES", "on", "On", "ON":
			return true, nil
		case "no", "No", "NO", "off", "Off", "OFF":
			return false, nil
		}
	}
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int":
		var i int64
		err := n.Decode(&i)
		return i, err
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("line %d: %s is no finite number", n.Line, n.Value)
		}
		return f, nil
	case "!!str", "!!timestamp":
		return n.Value, nil
	}
	return nil, fmt.Errorf("line %d: the tag %s is not supported", n.Line, n.Tag)
}
