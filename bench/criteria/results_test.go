package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRowsOfEarlierRunsStayUntilTheyRunAgain(t *testing.T) {
	dir := t.TempDir()
	for _, rows := range [][]row{
		{{Name: "P14", Verdict: "FAIL", Figure: "101 MB"}, {Name: "P2", Verdict: "pass", Figure: "as it was"}},
		{{Name: "P14", Verdict: "pass", Figure: "40 MB"}},
	} {
		if err := keep(dir, rows); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "criteria.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if strings.Contains(text, "101 MB") || !strings.Contains(text, "40 MB") || strings.Index(text, "P2 pass") > strings.Index(text, "P14 pass") || !strings.Contains(text, "as it was") {
		t.Errorf("got\n%s\nwant P2 as it was and then P14's second run", text)
	}
}

func TestAFileThatIsNotOursIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "criteria.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := keep(dir, []row{{Name: "P1"}}); err == nil {
		t.Error("got no error, want one that names the file")
	}
}

func TestCostsCompareNeighbouringSlices(t *testing.T) {
	slice := func(on bool, requests int64, cpu time.Duration) watchSlice {
		return watchSlice{On: on, Requests: requests, Length: time.Second, CPU: cpu}
	}
	loss, cpu := costs([]watchSlice{
		slice(false, 1000, 10*time.Millisecond), slice(true, 990, 10*time.Millisecond), slice(true, 890, 10*time.Millisecond), slice(false, 1000, 10*time.Millisecond),
		slice(false, 500, 10*time.Millisecond), slice(true, 500, 11*time.Millisecond), slice(true, 500, 11*time.Millisecond), slice(false, 500, 10*time.Millisecond),
		slice(false, 500, time.Millisecond), slice(true, 500, time.Millisecond),
	})
	if len(loss) != 2 || math.Abs(loss[0]-0.06) > 1e-9 || loss[1] != 0 || len(cpu) != 2 || math.Abs(cpu[1]-0.1) > 1e-9 {
		t.Errorf("got losses %v and CPU %v, want [0.06 0] and 0.1 more in the second four", loss, cpu)
	}
}
