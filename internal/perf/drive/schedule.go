package drive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"shoal/internal/perf/result"
)

// A Schedule says when the requests of an open loop are due. It never ends.
type Schedule interface {
	// next returns the time from one request to the one after it.
	next() time.Duration
}

// NewSchedule returns the schedule of a load. The same seed gives the same one.
func NewSchedule(l result.Load, intervals []time.Duration, seed uint64) Schedule {
	switch l.Distribution {
	case result.Poisson:
		return &poisson{mean: float64(time.Second) / l.Value, rng: rand.New(rand.NewPCG(seed, 0x5c4ed01e))}
	case result.File, result.Replay:
		return &replay{gaps: intervals}
	default:
		return &constant{gap: float64(time.Second) / l.Value}
	}
}

// A constant schedule has equal gaps. It multiplies rather than adds, so that a
// gap which is not a whole number of nanoseconds does not change the rate.
type constant struct {
	gap  float64
	n    float64
	last time.Duration
}

func (s *constant) next() time.Duration {
	s.n++
	at := time.Duration(s.n * s.gap)
	d := at - s.last
	s.last = at
	return d
}

// A poisson schedule has the gaps of independent arrivals.
type poisson struct {
	mean float64
	rng  *rand.Rand
}

func (s *poisson) next() time.Duration { return time.Duration(s.rng.ExpFloat64() * s.mean) }

// A replay repeats given gaps.
type replay struct {
	gaps []time.Duration
	i    int
}

func (s *replay) next() time.Duration {
	d := s.gaps[s.i]
	s.i = (s.i + 1) % len(s.gaps)
	return d
}

// ParseIntervals reads gaps in microseconds, one a line.
func ParseIntervals(r io.Reader) ([]time.Duration, error) {
	var gaps []time.Duration
	var sum time.Duration
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		us, err := strconv.ParseFloat(text, 64)
		if err != nil || !(us >= 0 && us <= 1e12) {
			return nil, fmt.Errorf("line %d: %q is not a number of microseconds", n, text)
		}
		gap := time.Duration(us * float64(time.Microsecond))
		sum += gap
		gaps = append(gaps, gap)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(gaps) == 0 || sum <= 0 {
		return nil, errors.New("it has no interval above 0")
	}
	return gaps, nil
}
