package perfcmd

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/cli/command"
	"shoal/internal/perf"
	"shoal/internal/perf/drive"
)

// sequenceFlags are perf's flags about sequences of requests.
type sequenceFlags struct {
	length    int
	variation float64
	ids       string
	count     int
	serial    bool
}

func (f *sequenceFlags) add(g *command.Group) {
	g.Number(&f.length, "sequence-length", 20, "mean `requests` of a sequence, for models that need sequences; default is the number of steps of a stream in --input-data, if it has any")
	g.Set.Float64Var(&f.variation, "sequence-length-variation", 20, "`percent` that the length may be more or less")
	g.Note("sequence-length-variation")
	g.Text(&f.ids, "sequence-id-range", "1", "ids of the sequences, as `start:end`; the end is exclusive")
	g.Number(&f.count, "num-of-sequences", 4, "open loop: `sequences` at one time; a closed loop has one for each caller")
	g.Toggle(&f.serial, "serial-sequences", "open loop: one request of a sequence under way at a time")
}

// sequences adds the flags to perf's settings.
func (b *builder) sequences() drive.Sequences {
	f := &b.flags.sequence
	s := drive.Sequences{Variation: f.variation / 100, Count: f.count, Serial: f.serial}
	if b.given("sequence-length") {
		s.Length = f.length
	}
	b.wrong(f.length < 1, "--sequence-length is %d, want 1 or more", f.length)
	b.wrong(f.variation < 0 || f.variation > 100, "--sequence-length-variation is %v, want 0 to 100", f.variation)
	b.wrong(f.count < 1, "--num-of-sequences is %d, want 1 or more", f.count)
	var err error
	s.First, s.End, err = parseIDs(f.ids)
	b.add(err)
	return s
}

// parseIDs reads start[:end].
func parseIDs(text string) (first, end uint64, err error) {
	from, to, bounded := strings.Cut(text, ":")
	if first, err = strconv.ParseUint(from, 10, 63); err == nil && bounded {
		end, err = strconv.ParseUint(to, 10, 63)
	}
	if err != nil || first == 0 || bounded && end <= first {
		return 0, 0, fmt.Errorf("--sequence-id-range %q is not start:end with a start from 1 up and an end after it", text)
	}
	return first, end, nil
}

// traceFlags are perf's flags about the server's trace settings.
type traceFlags struct {
	level               string
	rate, count, perLog int
}

func (f *traceFlags) add(g *command.Group) {
	g.Text(&f.level, "trace-level", "OFF", "set the server's trace `level` for the run: OFF, TIMESTAMPS or TENSORS")
	g.Number(&f.rate, "trace-rate", 1000, "the server traces one in this many `requests`")
	g.Number(&f.count, "trace-count", -1, "most `traces` that the server makes; -1 means no limit")
	g.Number(&f.perLog, "log-frequency", 0, "`traces` in each of the server's trace files; 0 means one file")
}

// settings returns the given settings by the protocol's names.
func (f *traceFlags) settings(given func(string) bool) map[string]string {
	list := make(map[string]string)
	for flag, value := range map[string]string{
		"trace-level": f.level, "trace-rate": strconv.Itoa(f.rate), "trace-count": strconv.Itoa(f.count), "log-frequency": strconv.Itoa(f.perLog),
	} {
		if given(flag) {
			list[strings.ReplaceAll(flag, "-", "_")] = value
		}
	}
	return list
}

// parsePeriodic reads start:end:step; a missing step is 1, a missing end the
// start.
func parsePeriodic(text string, every int) (drive.PeriodicLoad, perf.Range, error) {
	r, err := perf.ParseRange(text, true)
	if r.Single {
		r.End = r.Start
	}
	p := drive.PeriodicLoad{Start: int(r.Start), End: int(r.End), Step: int(max(1, r.Step)), Every: every}
	return p, perf.Range{Start: r.End, End: r.End, Step: 1, Single: true}, err
}
