package modelstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseYAML(t *testing.T) {
	cases := []struct {
		name, text string
		want       map[string]any
	}{
		{"frontend keys", "minWorkers: 1\nmaxWorkers: 2 # more\nbatchSize: 8\ndeviceType: \"cpu\"\n", map[string]any{"minWorkers": int64(1), "maxWorkers": int64(2), "batchSize": int64(8), "deviceType": "cpu"}},
		{"nested", "handler:\n  model_name: 'a # b'\n  opts: {x: 1, y: [1, 2.5, true]}\n  deep:\n    z: null\nlast: yes", map[string]any{
			"handler": map[string]any{"model_name": "a # b", "opts": map[string]any{"x": int64(1), "y": []any{int64(1), 2.5, true}}, "deep": map[string]any{"z": nil}},
			"last":    true,
		}},
		{"lists", "deviceIds: [0, 1]\nlist:\n- a\n- b: 1\n  c: 2\n-\n  - d\n", map[string]any{
			"deviceIds": []any{int64(0), int64(1)}, "list": []any{"a", map[string]any{"b": int64(1), "c": int64(2)}, []any{"d"}},
		}},
		{"empty", "# nothing\n---\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseYAML([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, bad := range []string{"a", "a: [1", "a: !!python/object x", "a: &x 1\nb: *x", "a: .nan", "a: \"x"} {
		if _, err := parseYAML([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	for _, text := range []string{"a: 1\nb:\n  - c: [1, {d: e}]\n", "- a\n- b", "a: '", "[}", "a:\n b:\n  c"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseYAML(b)
		if err == nil && got != nil {
			check(t, got, 0)
		}
	})
}

// check checks that there is nothing but plain values.
func check(t *testing.T, v any, depth int) {
	if depth > 3*maxYAMLDepth {
		t.Fatal("too deep")
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			check(t, e, depth+1)
		}
	case []any:
		for _, e := range v {
			check(t, e, depth+1)
		}
	case nil, string, int64, float64, bool:
	default:
		t.Fatalf("got a %T", v)
	}
}
