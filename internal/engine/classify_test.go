package engine

import (
	"testing"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

func TestClassesWithEmptyLabelsShowNone(t *testing.T) {
	out := &infer.Output{Type: tensor.Uint8, Data: []byte{3, 5, 4}}
	got := string(appendClasses(nil, out, 0, 3, 3, []string{"zero", ""}))
	if want := "\x03\x00\x00\x005:1\x03\x00\x00\x004:2\x08\x00\x00\x003:0:zero"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
