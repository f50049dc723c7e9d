package drive

import (
	"math"
	"strings"
	"testing"
	"time"

	"shoal/internal/perf/result"
)

func TestConstantScheduleKeepsItsRate(t *testing.T) {
	s := NewSchedule(result.Load{Value: 30000, Distribution: result.Constant}, nil, 1)
	var at time.Duration
	for range 30000 * 60 {
		at += s.next()
	}
	if at < time.Minute-time.Microsecond || at > time.Minute+time.Microsecond {
		t.Errorf("got %v for a minute's requests, want 1m", at)
	}
}

func TestPoissonScheduleHasExponentialGapsAndRepeats(t *testing.T) {
	l := result.Load{Value: 1000, Distribution: result.Poisson}
	a, b, other := NewSchedule(l, nil, 7), NewSchedule(l, nil, 7), NewSchedule(l, nil, 8)
	var sum, squares float64
	same := true
	const n = 10_000
	for range n {
		gap := a.next()
		if gap != b.next() {
			t.Fatal("got another schedule from the same seed, want the same")
		}
		same = same && gap == other.next()
		sum += gap.Seconds()
		squares += gap.Seconds() * gap.Seconds()
	}
	mean := sum / n
	cv := math.Sqrt(squares/n-mean*mean) / mean
	if cv < 0.95 || cv > 1.05 || mean < 0.00097 || mean > 0.00103 || same {
		t.Errorf("got a mean of %v s and a variation of %.3f, want 0.001 and 0.95 to 1.05, and another with another seed", mean, cv)
	}
}

func TestReplayRepeatsItsGaps(t *testing.T) {
	gaps, err := ParseIntervals(strings.NewReader("100\n\n 200.5 \n300\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSchedule(result.Load{Distribution: result.File}, gaps, 0)
	for i, want := range []time.Duration{100_000, 200_500, 300_000, 100_000} {
		if got := s.next(); got != want {
			t.Errorf("gap %d: got %v, want %v", i, got, want)
		}
	}
	for _, text := range []string{"", "0\n0\n", "x", "-1", "NaN", "1e300"} {
		if got, err := ParseIntervals(strings.NewReader(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
