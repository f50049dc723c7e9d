package arrivals

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	formatName    = "shoal-arrivals"
	formatVersion = 1

	// maxLine is more than any request's shapes need.
	maxLine = 1 << 20
	// maxAt keeps times far from overflow: a trace is shorter than a century.
	maxAt = 100 * 365 * 24 * time.Hour
	// maxInputs and maxDims bound what one line may ask for.
	maxInputs = 1000
	maxDims   = 64
)

// head is the first line of a trace.
type head struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Started time.Time `json:"started,omitzero"`
}

// line is any other.
type line struct {
	At      *int64 `json:"at_ns,omitempty"`
	Kind           // model, version, inputs
	Dropped int64  `json:"dropped,omitempty"`
}

// Parse reads a trace, or a plain file of times.
func Parse(r io.Reader) (*Trace, error) {
	p := parser{trace: &Trace{}, kinds: make(map[string]int)}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if err := p.line(text); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return p.done()
}

type parser struct {
	trace *Trace
	kinds map[string]int // indexes into the trace's kinds, by their JSON
	plain bool           // a file of times
	begun bool           // the first line was read
	first time.Time      // of a file with times of day
}

func (p *parser) line(text []byte) error {
	first := !p.begun
	p.begun = true
	if first && text[0] != '{' {
		p.plain = true
	}
	switch {
	case p.plain:
		return p.time(string(text))
	case first:
		return p.head(text)
	default:
		return p.entry(text)
	}
}

func (p *parser) head(text []byte) error {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return err
	}
	if h.Format != formatName {
		return fmt.Errorf(`this is not a trace: it does not begin with {"format":%q,"version":%d}`, formatName, formatVersion)
	}
	if h.Version != formatVersion {
		return fmt.Errorf("a trace of version %d; this program reads version %d", h.Version, formatVersion)
	}
	p.trace.Started = h.Started
	return nil
}

func (p *parser) entry(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if l.Dropped < 0 || l.Dropped > math.MaxInt64-p.trace.Dropped {
		return fmt.Errorf("dropped is %d, want 0 or more", l.Dropped)
	}
	p.trace.Dropped += l.Dropped
	if l.At == nil {
		if l.Dropped > 0 {
			return nil
		}
		return errors.New("at_ns is missing: when the request came")
	}
	if err := checkKind(&l.Kind); err != nil {
		return err
	}
	return p.add(*l.At, l.Kind)
}

func checkKind(k *Kind) error {
	if len(k.Inputs) > maxInputs {
		return fmt.Errorf("%d inputs, want at most %d", len(k.Inputs), maxInputs)
	}
	for i := range k.Inputs {
		in := &k.Inputs[i]
		switch {
		case in.Name == "":
			return fmt.Errorf("input %d has no name", i+1)
		case len(in.Shape) > maxDims:
			return fmt.Errorf("input %q has %d dimensions, want at most %d", in.Name, len(in.Shape), maxDims)
		case slices.ContainsFunc(in.Shape, func(d int64) bool { return d < 0 || d > math.MaxInt32 }):
			return fmt.Errorf("input %q has the shape %v, want dimensions from 0 to %d", in.Name, in.Shape, math.MaxInt32)
		case in.Bytes < 0:
			return fmt.Errorf("input %q has %d bytes, want 0 or more", in.Name, in.Bytes)
		}
	}
	return nil
}

// add adds an arrival of a kind.
func (p *parser) add(at int64, k Kind) error {
	if at < 0 || at > int64(maxAt) {
		return fmt.Errorf("at_ns is %d, want 0 to %d", at, int64(maxAt))
	}
	key, err := json.Marshal(k)
	if err != nil {
		return err
	}
	i, known := p.kinds[string(key)]
	if !known {
		i = len(p.trace.Kinds)
		p.kinds[string(key)] = i
		p.trace.Kinds = append(p.trace.Kinds, k)
	}
	p.trace.Arrivals = append(p.trace.Arrivals, Arrival{time.Duration(at), i})
	return nil
}

// time reads a line of a plain file: seconds, or a time of day.
func (p *parser) time(text string) error {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		if p.first.IsZero() {
			p.first = t
		}
		return p.relative(t.Sub(p.first))
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(seconds) <= maxAt.Seconds()) {
		return fmt.Errorf("%q is neither a number of seconds nor a time such as 2026-01-31T12:00:00.5Z", text)
	}
	if p.first.IsZero() {
		p.first = asTime(seconds)
	}
	return p.relative(asTime(seconds).Sub(p.first))
}

// asTime keeps the precision of a float of seconds since 1970: a tenth of a
// microsecond.
func asTime(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(part*1e9)))
}

// relative adds a time that may be before the first one; done shifts them all.
func (p *parser) relative(d time.Duration) error {
	if d > maxAt || d < -maxAt {
		return fmt.Errorf("the time is %v from the first, want less than a century", d)
	}
	if len(p.trace.Kinds) == 0 {
		p.trace.Kinds = []Kind{{}}
	}
	p.trace.Arrivals = append(p.trace.Arrivals, Arrival{At: d})
	return nil
}

// done sorts the arrivals.
func (p *parser) done() (*Trace, error) {
	t := p.trace
	if len(t.Arrivals) == 0 {
		return nil, errors.New("it has no arrivals")
	}
	slices.SortStableFunc(t.Arrivals, func(a, b Arrival) int { return int(max(-1, min(1, a.At-b.At))) })
	if first := t.Arrivals[0].At; p.plain {
		if whole := t.Arrivals[len(t.Arrivals)-1].At - first; whole > maxAt {
			return nil, fmt.Errorf("the last time is %v after the first, want less than a century", time.Duration(whole))
		}
		for i := range t.Arrivals {
			t.Arrivals[i].At -= first
		}
	}
	return t, nil
}
