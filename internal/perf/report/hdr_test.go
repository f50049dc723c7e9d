package report

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"shoal/internal/load"
)

func TestHDRSpectrumHasTheFormOfHdrHistogram(t *testing.T) {
	var h load.Histogram
	for i := range 10_000 {
		h.Record(time.Duration(i+1) * 10 * time.Microsecond)
	}
	var text strings.Builder
	if err := WriteHDR(&text, &h); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(text.String(), "\n")
	if head != "       Value     Percentile TotalCount 1/(1-Percentile)" {
		t.Errorf("got the heading %q", head)
	}
	lines, lastLevel, lastCount := 0, -1.0, 0
	for s := bufio.NewScanner(strings.NewReader(text.String())); s.Scan(); {
		var value, level, inverse float64
		var count int
		if n, _ := fmt.Sscanf(s.Text(), "%f %f %d %f", &value, &level, &count, &inverse); n < 3 {
			continue
		}
		lines++
		if level <= lastLevel || count < lastCount {
			t.Errorf("got %q after %v and %d, want rising lines", s.Text(), lastLevel, lastCount)
		}
		// 10 us each: the value of a share is known.
		if want := max(0.01, level*100); math.Abs(value-want) > 0.003*want+0.011 {
			t.Errorf("got %q, want %.3f ms", s.Text(), want)
		}
		lastLevel, lastCount = level, count
	}
	if lines < 40 || lastLevel != 1 || lastCount != 10_000 {
		t.Errorf("got %d lines up to %v with %d, want all up to 1 with 10000", lines, lastLevel, lastCount)
	}
	for _, want := range []string{"#[Mean    =       50.005, StdDeviation   =       28.869]", "#[Max     =      100.000, Total count    =        10000]", "#[Buckets =           54, SubBuckets     =          512]"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got %s, want %q in it", text.String()[len(text.String())-200:], want)
		}
	}
}

func TestHDRSpectrumOfNothing(t *testing.T) {
	var text strings.Builder
	if err := WriteHDR(&text, &load.Histogram{}); err != nil || !strings.Contains(text.String(), "Total count    =            0") {
		t.Errorf("got %q, %v, want an empty spectrum", &text, err)
	}
}
