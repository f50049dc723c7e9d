package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of fields in docs/from-triton.md")

const (
	guide       = "../../docs/from-triton.md"
	fieldsBegin = "<!-- fields: go test ./internal/model -update -->\n"
	fieldsEnd   = "<!-- end of fields -->"
)

// TestTheGuideHasTheFieldsThatDiffer compares the guide for those who come from
// Triton with the decisions about fields.
func TestTheGuideHasTheFieldsThatDiffer(t *testing.T) {
	table := "\n| field | here | why |\n|---|---|---|\n"
	for _, f := range fields {
		switch f.fate {
		case ignored:
			table += fmt.Sprintf("| `%s` | no effect; a warning names it | %s |\n", f.path, f.text)
		case refused:
			table += fmt.Sprintf("| `%s` | refused | %s |\n", f.path, f.text)
		}
	}
	table += "\n"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), fieldsBegin)
	got, after, ended := strings.Cut(rest, fieldsEnd)
	if !found || !ended {
		t.Fatalf("%s has no table of fields between %q and %q", guide, fieldsBegin, fieldsEnd)
	}
	if *update {
		if err := os.WriteFile(guide, []byte(before+fieldsBegin+table+fieldsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != table {
		t.Errorf("the table of fields in %s is old; run go test ./internal/model -update\ngot %s\nwant %s", guide, got, table)
	}
}
