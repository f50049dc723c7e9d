package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandJudgesByFloorsAndFaults(t *testing.T) {
	tests := []struct {
		name       string
		reportOnly bool
		missed     []string
		err        error
		code       int
		says       string
	}{
		{"all floors hold", false, nil, nil, 0, ""},
		{"a floor is missed", false, []string{"a", "b"}, nil, 1, "bench/x: floors missed: a; b\n"},
		{"a floor is missed and only told", true, []string{"a"}, nil, 0, "bench/x: floors missed: a\n"},
		{"it could not run", true, nil, errors.New("no such server"), 1, "bench/x: no such server\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, said := &Command{Name: "x", ReportOnly: tt.reportOnly}, new(strings.Builder)
			if code := c.judge(said, tt.missed, tt.err); code != tt.code || said.String() != tt.says {
				t.Errorf("got exit code %d and %q, want %d and %q", code, said, tt.code, tt.says)
			}
		})
	}
}

func TestPublishPrintsWhatWasAskedForAndWritesFiles(t *testing.T) {
	for asJSON, want := range map[bool]string{false: "| row |\n", true: "{\n  \"a\": 1\n}\n"} {
		c, printed := &Command{Name: "x", Out: t.TempDir(), JSON: asJSON}, new(strings.Builder)
		if err := c.Publish(printed, map[string]int{"a": 1}, "| row |\n", "# x\n"); err != nil {
			t.Fatal(err)
		}
		if printed.String() != want {
			t.Errorf("JSON %v: got %q, want %q", asJSON, printed, want)
		}
		if page, err := os.ReadFile(filepath.Join(c.Out, "x.md")); err != nil || string(page) != "# x\n" {
			t.Errorf("got the page %q, %v, want %q", page, err, "# x\n")
		}
	}
}

func TestPublishWritesNoFileWithoutAFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := (&Command{Name: "x"}).Publish(new(strings.Builder), 1, "", ""); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want an empty folder", left, err)
	}
}
