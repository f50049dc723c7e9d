package input

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

var (
	floats = Port{Name: "F", Type: tensor.FP32, Shape: tensor.Shape{2}}
	words  = Port{Name: "W", Type: tensor.Bytes, Shape: tensor.Shape{1}}
	vary   = Port{Name: "V", Type: tensor.Int32, Shape: tensor.Shape{-1, 2}}
	maybe  = Port{Name: "M", Type: tensor.Bool, Shape: tensor.Shape{1}, Optional: true}
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// numbers reads FP32 values.
func numbers(data []byte) []float32 {
	var list []float32
	for ; len(data) >= 4; data = data[4:] {
		list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return list
}

func TestRandomValuesAreOnesThatAModelTakes(t *testing.T) {
	for typ := tensor.Bool; typ <= tensor.BF16; typ++ {
		if typ == tensor.Bytes {
			continue
		}
		p := Port{Name: "X", Type: typ, Shape: tensor.Shape{100}}
		s, err := Load([]Port{p}, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		text, err := client.AppendJSON(nil, typ, s.Streams[0][0][0].Data)
		if err != nil || strings.ContainsAny(string(text), "NI") {
			t.Errorf("%s: got %s, %v, want numbers", typ, text, err)
		}
		distinct := map[string]bool{}
		for _, v := range strings.Split(strings.Trim(string(text), "[]"), ",") {
			distinct[v] = true
			if strings.Contains(v, "-") && !strings.Contains(v, "e-") {
				t.Errorf("%s: got %s, want nothing below zero", typ, v)
			}
		}
		if len(distinct) < 2 {
			t.Errorf("%s: got only %v, want different values", typ, distinct)
		}
	}
}

func TestRandomDataRepeatsWithItsSeed(t *testing.T) {
	data := func(seed uint64, raw bool) string {
		s, err := Load([]Port{floats, words}, Options{Seed: seed, StringLength: 8, RawRandom: raw})
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Streams[0][3][0].Data) + string(s.Streams[0][3][1].Data)
	}
	first, again := data(1, false), data(1, false)
	if first != again || first == data(2, false) || first == data(1, true) {
		t.Error("got data that does not depend on the seed alone")
	}
}

func TestStringsHaveTheLengthOrTheTextAskedFor(t *testing.T) {
	fixed := "hello"
	for _, c := range []struct {
		name string
		o    Options
		want func(string) bool
	}{
		{"random", Options{StringLength: 9}, func(s string) bool { return len(s) == 9 }},
		{"zero", Options{Sources: []string{"zero"}, StringLength: 9}, func(s string) bool { return len(s) == 9 }},
		{"given", Options{StringData: &fixed, StringLength: 9}, func(s string) bool { return s == "hello" }},
	} {
		s, err := Load([]Port{words}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.Strings(s.Streams[0][0][0].Data)
		if err != nil || len(list) != 1 || !c.want(list[0]) {
			t.Errorf("%s: got %q, %v", c.name, list, err)
		}
	}
}

func TestZeroIsZero(t *testing.T) {
	s, err := Load([]Port{floats, maybe}, Options{Sources: []string{"zero"}})
	if err != nil || len(s.Streams[0][0]) != 1 || string(s.Streams[0][0][0].Data) != strings.Repeat("\x00", 8) {
		t.Errorf("got %v, %v, want eight zero bytes and no optional input", s, err)
	}
}

func TestShapesAreForInputsThatVary(t *testing.T) {
	s, err := Load([]Port{vary, floats}, Options{Shapes: map[string]tensor.Shape{"V": {3, 2}, "F": {5}, "Z": {1}}})
	if err != nil || !s.Streams[0][0][0].Shape.Equal(tensor.Shape{3, 2}) || len(s.Streams[0][0][1].Data) != 8 {
		t.Errorf("got %v, %v, want V of shape 3,2 and F as the model has it", s, err)
	}
	if len(s.Notes) != 2 || !strings.Contains(s.Notes[0], "fixes the shape") || !strings.Contains(s.Notes[1], `no input "Z"`) {
		t.Errorf("got notes %q, want one for F and one for Z", s.Notes)
	}
	_, err = Load([]Port{vary}, Options{})
	if err == nil || !strings.Contains(err.Error(), "--shape V:1,2") {
		t.Errorf("without a shape: got %v, want one that names the flag", err)
	}
	_, err = Load([]Port{vary}, Options{Shapes: map[string]tensor.Shape{"V": {3, 4}}})
	if err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("a shape that does not fit: got %v", err)
	}
}

func TestParseShapeSplitsAtTheLastColon(t *testing.T) {
	name, shape, err := ParseShape("in:put.1:1,32,100")
	if err != nil || name != "in:put.1" || !shape.Equal(tensor.Shape{1, 32, 100}) {
		t.Errorf("got %q, %v, %v, want in:put.1 and 1,32,100", name, shape, err)
	}
	for _, text := range []string{"", "x", ":1", "x:", "x:0", "x:-1", "x:1,", "x:a", "x:1e3", "x:99999999999999999999"} {
		if _, _, err := ParseShape(text); err == nil {
			t.Errorf("%q: got no error, want one", text)
		}
	}
}

func TestJSONFilesMayHaveStepsOrStreams(t *testing.T) {
	one := write(t, "one.json", `{"data":[{"F":[1,2.5]},{"F":{"b64":"AAAAAAAAgD8="}},{"F":{"content":[[3],[4]],"shape":[2]}}]}`)
	s, err := Load([]Port{floats, maybe}, Options{Sources: []string{one}})
	if err != nil {
		t.Fatal(err)
	}
	var got []float32
	for _, step := range s.Streams[0] {
		got = append(got, numbers(step[0].Data)...)
	}
	if want := []float32{1, 2.5, 0, 1, 3, 4}; !slices.Equal(got, want) || !s.Read {
		t.Errorf("got %v, want %v", got, want)
	}
	two := write(t, "two.json", `{"data":[[{"F":[1,2],"M":[true]}],[{"F":[5,6],"M":[false]},{"F":[7,8],"M":true}]]}`)
	s, err = Load([]Port{floats, maybe}, Options{Sources: []string{one, two}})
	if err != nil || len(s.Streams) != 3 || len(s.Streams[2]) != 2 || len(s.Streams[1][0]) != 2 {
		t.Errorf("got %v, %v, want three streams, the last of two steps with both inputs", s, err)
	}
}

func TestJSONFaultsSayWhereTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                              "not a JSON object",
		`{"data":[{"F":[1,2]}]} x`:                       "something follows",
		`{"data":{}}`:                                    `"data" is not a list`,
		`{"data":[]}`:                                    `"data" is not a list`,
		`{"data":[{"F":[1,2]},{"F":[1]}]}`:               `step 2: input "F": has 4 bytes, shape [2] of type FP32 wants 8`,
		`{"data":[{"G":[1,2]}]}`:                         `step 1: input "F" is missing`,
		`{"data":[{"F":[1,2],"G":[1]}]}`:                 `step 1: the model has no input "G"`,
		`{"data":[{"F":["a","b"]}]}`:                     `input "F": element 1: a is not a value of type FP32`,
		`{"data":[{"F":{"b64":"!"}}]}`:                   `input "F": illegal base64`,
		`{"data":[{"F":{"x":1}}]}`:                       `an object without "b64" or "content"`,
		`{"data":[[{"F":[1,2]}],[]]}`:                    `stream 2 is not a list`,
		`{"data":[[{"F":[1,2]}],{}]}`:                    `stream 2 is not a list`,
		`{"data":[{"F":[1,2]},[]]}`:                      `step 2: not an object`,
		`{"data":[[{"F":[1]}]]}`:                         `stream 1, step 1: input "F"`,
		`{"data":[{"F":{"content":[1,2],"shape":[3]}}]}`: `shape [3] does not fit the model's [2]`,
	} {
		path := write(t, "x.json", text)
		_, err := Load([]Port{floats}, Options{Sources: []string{path}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q and the file's name", text, err, want)
		}
	}
	if _, err := Load([]Port{floats}, Options{Sources: []string{"nosuch"}}); err == nil || !strings.Contains(err.Error(), "--input-data") {
		t.Errorf("a missing file: got %v, want one that names the flag", err)
	}
}

func TestFolderHasAFileForEachInput(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"F": "\x00\x00\x80\x3f\x00\x00\x00\x40", "W": "two words\n", "other": "x"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load([]Port{floats, words, maybe}, Options{Sources: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	step := s.Streams[0][0]
	if got := numbers(step[0].Data); len(step) != 2 || !slices.Equal(got, []float32{1, 2}) || string(step[1].Data) != "\x09\x00\x00\x00two words" {
		t.Errorf("got %v, want 1, 2 and the words", step)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "other") {
		t.Errorf("got notes %q, want one about the other file", s.Notes)
	}
	if _, err := Load([]Port{vary, {Name: "F", Type: tensor.FP64, Shape: tensor.Shape{2}}}, Options{Sources: []string{folder}}); err == nil ||
		!strings.Contains(err.Error(), `input "V"`) || !strings.Contains(err.Error(), "wants 16") {
		t.Errorf("got %v, want a fault of each input", err)
	}
}

func TestRequestsUseEveryStepInTurn(t *testing.T) {
	path := write(t, "x.json", `{"data":[{"F":[1,1]},{"F":[2,2]},{"F":[3,3]}]}`)
	s, err := Load([]Port{floats}, Options{Sources: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Requests(2, true)
	if err != nil || len(list) != 3 {
		t.Fatalf("got %d requests, %v, want 3", len(list), err)
	}
	for i, want := range [][]float32{{1, 1, 2, 2}, {3, 3, 1, 1}, {2, 2, 3, 3}} {
		tt := list[i][0]
		if got := numbers(tt.Data); !slices.Equal(got, want) || !tt.Shape.Equal(tensor.Shape{2, 2}) {
			t.Errorf("request %d: got %v of shape %s, want %v", i, got, tt.Shape, want)
		}
	}
	one, err := s.Requests(1, false)
	if err != nil || len(one) != 3 || !one[0][0].Shape.Equal(tensor.Shape{2}) {
		t.Errorf("without batches: got %v, %v, want three of shape 2", one, err)
	}
	if _, err := s.Requests(2, false); err == nil {
		t.Error("a batch for a model without: got no error, want one")
	}
}

func TestRowsOfARequestMustFitTogether(t *testing.T) {
	for text, want := range map[string]string{
		`{"data":[{"V":{"content":[1,2],"shape":[1,2]}},{"V":{"content":[1,2,3,4],"shape":[2,2]}}]}`:        "same shape",
		`{"data":[{"V":{"content":[1,2],"shape":[1,2]},"M":[true]},{"V":{"content":[1,2],"shape":[1,2]}}]}`: "same inputs",
	} {
		s, err := Load([]Port{vary, maybe}, Options{Sources: []string{write(t, "x.json", text)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Requests(2, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, err := s.Requests(1, true); err != nil {
			t.Errorf("one row a request: got %v, want no error", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"data":[{"F":[1,2],"W":["x"]}]}`)
	f.Add(`{"data":[[{"F":{"b64":"AAAAAAAAgD8="},"W":{"content":["a"],"shape":[1]},"M":true}]]}`)
	f.Add(`{"data":[{"F":[1,2],"W":["x"]}],"validation_data":[{"F":[1,2]}]}`)
	f.Add(`{"data":[{"V":{"content":[[1,2]],"shape":[1,2]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, ports := range [][]*Port{{&floats, &words, &maybe}, {&vary}} {
			streams, _, err := parse(ports, nil, []byte(text))
			if err != nil {
				continue
			}
			s := &Set{Streams: streams}
			list, err := s.Requests(1, true)
			if err != nil || len(list) == 0 {
				t.Errorf("got %d requests, %v from data that was taken, want some", len(list), err)
			}
		}
	})
}
