package model

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
)

// FuzzParse holds Parse against package prototext: both accept the same texts
// and read the same out of them.
func FuzzParse(f *testing.F) {
	for _, text := range seedTexts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Parse(text, "config.pbtxt")
		want := &modelpb.ModelConfig{}
		wantErr := prototext.Unmarshal(text, want)
		switch {
		case err != nil && wantErr == nil:
			t.Fatalf("Parse(%q): got error %v, want %v", text, err, want)
		case err == nil && wantErr != nil:
			t.Fatalf("Parse(%q): got %v, want error %v", text, got, wantErr)
		case err == nil && !proto.Equal(got, want):
			t.Fatalf("Parse(%q): got %v, want %v", text, got, want)
		}
	})
}

// seedTexts returns the texts that can be read and those that cannot.
func seedTexts(f *testing.F) [][]byte {
	texts := realTexts(f)
	for _, c := range faultyTexts {
		texts = append(texts, []byte(c.text))
	}
	return texts
}

// realTexts returns the files under testdata/config and the texts of the table of
// good ones.
func realTexts(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/config/*.pbtxt")
	if err != nil || len(files) == 0 {
		t.Fatalf("configurations: got %v, %v, want some", files, err)
	}
	var texts [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	for _, c := range goodTexts {
		texts = append(texts, []byte(c.text))
	}
	return texts
}
