package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   float64
	}{
		{"none", nil, 0},
		{"one", []float64{3}, 3},
		{"an odd number, not in order", []float64{9, 1, 5}, 5},
		{"an even number", []float64{4, 1, 2, 9}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Median(tt.values); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTableAlignsItsColumns(t *testing.T) {
	got := Table([][]string{{"row", "n"}, {"a", "12"}, {"long name", "3"}})
	want := "" +
		"| row       |  n |\n" +
		"| --------- | -: |\n" +
		"| a         | 12 |\n" +
		"| long name |  3 |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWriteMakesBothFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	if err := Write(dir, "x", map[string]int{"a": 1}, "# x\n"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"x.json": "{\n  \"a\": 1\n}\n", "x.md": "# x\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
}

func TestFactsNameTheMachineAndTheDay(t *testing.T) {
	f := Gather()
	if page := f.Markdown(); f.Cores < 1 || !strings.Contains(page, f.Date) || !strings.Contains(page, f.Go) {
		t.Errorf("got %s, want the date %q and %q", page, f.Date, f.Go)
	}
}
