package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"shoal/bench/internal/measure"
)

const (
	// settle is the beginning of a slice that is not counted; the time of two batches is
	// added to it.
	settle = 50 * time.Millisecond
	// sliceBatches is how many batches a slice has at least.
	sliceBatches = 8
	// sliceLooks is after how many slices it is looked at how much they vary.
	sliceLooks = 20
)

// A slicer loads the sides of a cell in turn, each for a short time. The speed of a
// machine may change by a fifth within seconds: with many short slices it is the same for
// all of them.
type slicer struct {
	runner
	cell   cell
	settle time.Duration // its beginning, which is not counted
	length time.Duration
	rest   time.Duration // after a slice, in which what was sent is answered
	paused map[string]*measure.Paused
}

// compareStatics finds the best static setting and then loads Shoal without settings and
// with that setting in turn. The slices of the search do not count: the best of several
// settings had luck, too.
func (r runner) compareStatics(ctx context.Context, c cell, auto side, statics []static) (best side, got [2][]measure.Sample, err error) {
	batch := r.longestBatch(c)
	s := slicer{runner: r, cell: c, settle: settle + 2*batch, length: max(r.slice, sliceBatches*batch), rest: settle/2 + 2*batch, paused: make(map[string]*measure.Paused)}
	defer s.close()
	for range 4 { // to learn
		if _, err := s.round(ctx, 0, auto); err != nil {
			return side{}, got, err
		}
	}
	if best, err = s.search(ctx, c, statics); err != nil {
		return side{}, got, err
	}
	for n := range r.slices {
		round, err := s.round(ctx, n, auto, best)
		if err != nil {
			return side{}, got, err
		}
		for i, sample := range round {
			got[i] = append(got[i], sample)
		}
		if (n+1)%sliceLooks == 0 {
			if now := compareSlices(got[0], got[1]); now.high-now.low <= 2*r.precision*now.value {
				break
			}
		}
	}
	last := compareSlices(got[0], got[1])
	fmt.Fprintf(os.Stderr, "%s, %d slices of %v: %.3f (%.3f-%.3f) of %q\n", c.name(), len(got[0]), s.length, last.value, last.low, last.high, best.name)
	return best, got, nil
}

// longestBatch returns what a batch of all callers of an instance takes.
func (r runner) longestBatch(c cell) time.Duration {
	longest := 0.0
	for _, b := range r.costs {
		if b.Rows <= max(1, c.callers/c.setting.instances) {
			longest = max(longest, b.Micros)
		}
	}
	return time.Duration(longest * float64(time.Microsecond))
}

// search returns the best of the static settings: each has a slice, the better half two
// more, and so on. A caller alone has nobody to wait for: there only the setting
// without a delay counts.
func (s *slicer) search(ctx context.Context, c cell, statics []static) (side, error) {
	type tried struct {
		side
		throughput float64 // of all its slices together
	}
	var left []*tried
	for i, st := range statics {
		if c.callers == 1 && st != (static{}) {
			continue
		}
		left = append(left, &tried{side: side{st.String(), s.oneCopy, staticModel(group{model: c.model, setting: c.setting}, i, st)}})
	}
	for runs := 1; len(left) > 1; runs *= 2 {
		for range runs {
			for _, t := range left {
				got, err := s.round(ctx, 0, t.side)
				if err != nil {
					return side{}, err
				}
				t.throughput += got[0].Throughput
			}
		}
		slices.SortStableFunc(left, func(a, b *tried) int { return -cmp.Compare(a.throughput, b.throughput) })
		left = left[:len(left)/2]
	}
	return left[0].side, nil
}

// round loads every side once, in an order that changes from round to round.
func (s *slicer) round(ctx context.Context, n int, sides ...side) (samples []measure.Sample, err error) {
	err = s.undisturbed(ctx, func() (float64, error) {
		samples = make([]measure.Sample, len(sides))
		worst := 0.0
		for turn := range sides {
			i := (turn + n) % len(sides)
			if n%2 == 1 {
				i = len(sides) - 1 - i
			}
			got, err := s.slice(ctx, sides[i])
			if err != nil {
				return 0, err
			}
			samples[i], worst = got, max(worst, got.Stolen)
		}
		return worst, nil
	})
	return samples, err
}

// slice loads one side.
func (s *slicer) slice(ctx context.Context, on side) (measure.Sample, error) {
	if s.cell.generator == ours {
		target, err := s.target(s.cell, on)
		if err != nil {
			return measure.Sample{}, err
		}
		return measure.Run(ctx, on.server, measure.Load{Model: on.model.Name, Target: target, Callers: s.cell.callers, Warmup: s.settle, Duration: s.length})
	}
	p := s.paused[on.name]
	if p == nil {
		var err error
		if p, err = s.tool(s.cell.protocol).Pause(ctx, on.server, on.model, s.cell.callers); err != nil {
			return measure.Sample{}, err
		}
		s.paused[on.name] = p
	}
	got, err := p.Slice(ctx, s.settle, s.length)
	time.Sleep(s.rest)
	if err != nil {
		err = fmt.Errorf("a slice of %q: %w", on.name, err)
	}
	return got, err
}

func (s *slicer) close() {
	for _, p := range s.paused {
		p.Close()
	}
}
