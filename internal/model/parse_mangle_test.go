package model

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
)

// pieces are what configurations are made of, and what they should not be.
var pieces = []string{
	"{", "}", "<", ">", "[", "]", ":", ",", ";", " ", "\n", "#", "# x\n", "-", "- ", "+", ".", "_", "\\", "\"", "'", "\x00", "\xff", "é",
	"name", "name:", "input", "input {", "dims", "dims: [", "key: ", "value: ", "value {", "all {}", "latest { num_versions: 2 }",
	"optimization { ", "dynamic_batching {", "parameters {", "metric_tags", "instance_group", "fp32_false_true: ", "bool_false_true: ",
	"string_value: ", "zero_data: ", "input_data_file: ", "[x.y/z]", "3:", "true", "f", "t", "KIND_CPU", "TYPE_FP32", "inf", "-inf", "- inf",
	"nan", "1", "-1", "- 1", "010", "0x1f", "1.5", "1e5", "1e", ".5", ".", "1.f", "0f", "1F", "08", "99999999999", "18446744073709551616",
	`"a"`, `'b'`, `"\n"`, `"\x4"`, `"\400"`, `"\u12"`, `"\ud83d\udc1f"`, `"\ud83dx"`, `"\q"`, `"\xc3" "\xa9"`,
}

// TestParseAgreesWithPrototextOnMangledTexts changes real configurations piece
// by piece, which finds its way deeper into them than changing bytes does.
func TestParseAgreesWithPrototextOnMangledTexts(t *testing.T) {
	texts := realTexts(t)
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 10_000 {
		text := texts[random.IntN(len(texts))]
		for range 1 + random.IntN(3) {
			text = mangle(text, random)
		}
		want := &modelpb.ModelConfig{}
		wantErr := prototext.Unmarshal(text, want)
		got, err := Parse(text, "c")
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("Parse(%q): got error %v, want %v", text, err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Fatalf("Parse(%q): got %v, want %v", text, got, want)
		}
		if err == nil {
			accepted++
		}
	}
	if accepted < 500 {
		t.Errorf("good texts among the mangled ones: got %d, want at least 500 for the comparison to mean something", accepted)
	}
}

// mangle returns the text with one piece put in, taken out or put in place of
// another.
func mangle(text []byte, random *rand.Rand) []byte {
	from := random.IntN(len(text) + 1)
	to := from
	if random.IntN(2) == 0 {
		to = min(len(text), from+random.IntN(12))
	}
	var piece []byte
	if random.IntN(4) != 0 {
		piece = []byte(pieces[random.IntN(len(pieces))])
	}
	return bytes.Join([][]byte{text[:from], piece, text[to:]}, nil)
}
