package perf

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

func TestRunLeavesAColdFirstWindowOut(t *testing.T) {
	for name, c := range map[string]struct {
		cold time.Duration
		want int // windows
	}{
		"warm from the start":       {0, 3},
		"cold for the first 300 ms": {280 * time.Millisecond, 4}, // none ends as a slice does
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &fakeServer{latency: func(int) time.Duration {
				if time.Since(start) < c.cold {
					return 24 * time.Millisecond
				}
				return 20 * time.Millisecond
			}}
			// The windows agree all the same: the stability rule alone would not see it.
			r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(4)}, server, nil)
			l := r.Levels[0]
			if err != nil || !l.Stable || len(l.Windows) != c.want {
				t.Fatalf("%s: got %d windows, stable %v, %v, want %d", name, len(l.Windows), l.Stable, err, c.want)
			}
			if max := l.Merged.Latency.Max(); max != 20*time.Millisecond || l.Merged.Duration != 3600*time.Millisecond {
				t.Errorf("%s: got a latency of %v in %v, want 20ms in three windows", name, max, l.Merged.Duration)
			}
			if (l.Windows[0].WarmUp != "") != (c.want == 4) {
				t.Errorf("%s: got %q", name, l.Windows[0].WarmUp)
			}
			var text strings.Builder
			report := &report.Report{Out: &text, Err: &text, Plan: &r.Plan, Target: &r.Target, Host: r.Host}
			report.End(&l)
			if got := strings.Contains(text.String(), "| warm-up: window 1 of 4 is left out, its first 300ms were not like the rest: latency 1.2x"); got != (c.want == 4) {
				t.Errorf("%s: got the report\n%s", name, &text)
			}
		})
	}
}

func TestThePipelineFillingIsNoWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No answer can come within the first 150 ms.
		r, err := measured(t, Settings{Mode: result.Concurrency, Range: single(8)}, &fakeServer{latency: always(150 * time.Millisecond)}, nil)
		if l := r.Levels[0]; err != nil || l.Windows[0].WarmUp != "" {
			t.Errorf("got %q, %v, want no warm-up", l.Windows[0].WarmUp, err)
		}
	})
}
