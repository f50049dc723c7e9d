package input

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/tensor"
)

var sums = []Port{{Name: "SUM", Type: tensor.Uint8, Shape: tensor.Shape{-1}}, {Name: "TEXT", Type: tensor.Bytes, Shape: tensor.Shape{1}}}

func TestValidationDataFollowsTheDataIntoBatches(t *testing.T) {
	path := write(t, "v.json", `{"data":[{"F":[1,2]},{"F":[3,4]},{"F":[5,6]}],"validation_data":[{"SUM":[1]},{"SUM":{"content":[2,3],"shape":[2]}},{"SUM":{"b64":"BA=="}}]}`)
	s, err := Load([]Port{floats}, Options{Sources: []string{path}, Outputs: sums})
	if err != nil {
		t.Fatal(err)
	}
	got := s.Answers(2)
	want := []map[string][]byte{{"SUM": {1, 2, 3}}, {"SUM": {4, 1}}, {"SUM": {2, 3, 4}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers of batches of two (-want +got):\n%s", diff)
	}
	if s, err = Load([]Port{floats}, Options{Outputs: sums}); err != nil || s.Answers(2) != nil {
		t.Errorf("random data: got %v, %v, want no expectations", s.Answers(2), err)
	}
}

func TestValidationDataMustFitTheData(t *testing.T) {
	const data = `{"data":[{"F":[1,2]},{"F":[3,4]}],"validation_data":`
	for text, want := range map[string]string{
		`[]`:                                  "not a list with steps",
		`[{"SUM":[1]}]`:                       "1 steps in \"validation_data\" and 2",
		`[[{"SUM":[1]}],[{"SUM":[1]}]]`:       "has 2 streams",
		`[{"SUM":[1]},{"OTHER":[1]}]`:         `no output "OTHER"`,
		`[{"SUM":[1]},{"SUM":["x"]}]`:         `output "SUM"`,
		`[{"SUM":[1]},5]`:                     "not an object",
		`[{"SUM":[1]},{"SUM":{"b64":"-"}}]`:   "base64",
		`[{"SUM":[1]},{"TEXT":{"shape":[]}}]`: "without",
	} {
		_, err := Load([]Port{floats}, Options{Sources: []string{write(t, "bad.json", data+text+"}")}, Outputs: sums})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestFolderMayHoldExpectedOutputs(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"F": "\x00\x00\x80?\x00\x00\x80?", "SUM": "\x05", "TEXT": "a\nb\n", "else": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load([]Port{floats}, Options{Sources: []string{dir}, Outputs: sums})
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string][]byte{{"SUM": {5}, "TEXT": []byte("\x01\x00\x00\x00a\x01\x00\x00\x00b")}}
	if diff := cmp.Diff(want, s.Answers(1)); diff != "" || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "else") {
		t.Errorf("got notes %q and answers (-want +got):\n%s", s.Notes, diff)
	}
}
