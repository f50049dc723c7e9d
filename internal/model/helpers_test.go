package model

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// config returns the configuration that a text describes.
func config(t *testing.T, text string) *modelpb.ModelConfig {
	t.Helper()
	cfg, err := Parse([]byte(text), "config.pbtxt")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// at returns what stands at a path of names and indices in a JSON text, nil
// when there is nothing.
func at(t *testing.T, text []byte, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				t.Fatalf("%s: got no element %s", path, step)
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// checkError compares an error's code and text; an empty text wants none.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got error %q, want none", err)
	case want != "" && err == nil:
		t.Errorf("got no error, want %q", want)
	case want != "" && status.Public(err) != want:
		t.Errorf("got error %q, want %q", status.Public(err), want)
	case want != "" && status.CodeOf(err) != status.InvalidArgument:
		t.Errorf("code of %q: got %v, want %v", err, status.CodeOf(err), status.InvalidArgument)
	}
}
