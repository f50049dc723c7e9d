package properties

import (
	"maps"
	"testing"
)

func TestParse(t *testing.T) {
	cases := []struct {
		name, text string
		want       map[string]string
	}{
		{"plain", "a=1\nb = 2 \nc:3\nd 4\ne\n", map[string]string{"a": "1", "b": "2 ", "c": "3", "d": "4", "e": ""}},
		{"comments and empty lines", "# a=1\n\n ! b=2\n c=3\r\n", map[string]string{"c": "3"}},
		{"continued lines", "models={\\\n  \"a\": 1,\\\n  \"b\": 2}\nx=1", map[string]string{"models": `{"a": 1,"b": 2}`, "x": "1"}},
		{"escapes", `a\ b\=c=\u0041\t\\` + "\n", map[string]string{"a b=c": "A\t\\"}},
		{"an even number of backslashes ends the line", "a=b\\\\\nc=1", map[string]string{"a": `b\`, "c": "1"}},
		{"urls", "inference_address=http://0.0.0.0:8080", map[string]string{"inference_address": "http://0.0.0.0:8080"}},
		{"the last of a repeated key", "a=1\na=2", map[string]string{"a": "2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(c.text)
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("got %q and %v, want %q", got, err, c.want)
			}
		})
	}
	if _, err := Parse(`a=\u00`); err == nil {
		t.Error("a broken escape was accepted")
	}
}

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) { return "v-" + name, name != "NONE" }
	if got, err := Expand("a$$X$$b$$Y$$ $$", lookup); err != nil || got != "av-Xbv-Y $$" {
		t.Errorf("got %q and %v", got, err)
	}
	if _, err := Expand("$$NONE$$", lookup); err == nil || err.Error() != "Invalid Environment Variable NONE" {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"a=1\\\n b", `\u0041:x`, "!c\n#d\n e = f", "\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(text + "\n# end")
		if err == nil && len(again) > len(got)+1 {
			t.Errorf("got %d keys, and %d with a comment behind them", len(got), len(again))
		}
	})
}
