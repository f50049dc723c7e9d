package trace

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"shoal/internal/status"
)

// A field is a setting that clients can change.
type field uint8

const (
	levelField field = 1 << iota
	rateField
	countField
	frequencyField
)

var fields = map[string]field{
	"trace_level": levelField, "trace_rate": rateField, "trace_count": countField, "log_frequency": frequencyField,
}

// A setting says which requests are traced: all, or those of one model. It counts
// requests from zero; a change makes another one, and traces on their way end under
// theirs.
type setting struct {
	level     Level
	rate      uint32
	frequency uint32
	own       field // which are its own, rather than those of the server or of the start

	count atomic.Int64 // traces left to take; below zero for no limit
	seen  atomic.Uint64

	mu       sync.Mutex // protects the fields below, and changes of count
	created  uint64
	ended    uint64
	retired  bool   // another one holds now
	waiting  []byte // traces that are not in the file yet
	nWaiting int
}

// values are the values of a setting.
type values struct {
	level     Level
	rate      uint32
	count     int64
	frequency uint32
}

func (t *Tracer) newSetting(v values, own field) *setting {
	s := &setting{level: v.level, rate: v.rate, frequency: v.frequency, own: own}
	s.count.Store(v.count)
	return s
}

func (s *setting) values() values {
	return values{level: s.level, rate: s.rate, count: s.count.Load(), frequency: s.frequency}
}

// A Setting is one setting as clients see it.
type Setting struct {
	Name  string
	Value []string // several only for the level
}

// Settings returns the settings of a model, or of the server when its name is empty, in
// the order in which they are shown.
func (t *Tracer) Settings(model string) []Setting {
	v := t.state.Load().of(model).values()
	list := []Setting{
		{"trace_level", v.level.names()},
		{"trace_rate", []string{strconv.FormatUint(uint64(v.rate), 10)}},
		{"trace_count", []string{strconv.FormatInt(v.count, 10)}},
	}
	if t.start.Mode == ModeTriton {
		list = append(list, Setting{"log_frequency", []string{strconv.FormatUint(uint64(v.frequency), 10)}}, Setting{"trace_file", []string{t.start.File}})
	}
	list = append(list, Setting{"trace_mode", []string{t.start.Mode.String()}})
	if t.start.Mode == ModeOpenTelemetry {
		list = append(list, t.start.OpenTelemetry.settings()...)
	}
	return list
}

func (l Level) names() []string {
	var names []string
	if l&Timestamps != 0 {
		names = append(names, "TIMESTAMPS")
	}
	if l&Tensors != 0 {
		names = append(names, "TENSORS")
	}
	if len(names) == 0 {
		return []string{"OFF"}
	}
	return names
}

// Update changes settings of a model, or of the server when its name is empty, and
// returns all of them. An empty value puts a setting back: the model's to the
// server's, the server's to that of the start. A change with a fault changes nothing.
func (t *Tracer) Update(model string, changes map[string][]string) ([]Setting, error) {
	changed, err := parseChange(changes)
	if err != nil {
		return nil, err
	}
	if changed == (change{}) {
		return t.Settings(model), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.state.Load()
	next := &state{server: was.server, models: maps.Clone(was.models)}
	if model != "" {
		if err := t.change(next, model, changed); err != nil {
			return nil, err
		}
	} else {
		if next.server = t.newSetting(changed.apply(t.start.values(), was.server)); t.start.fault(next.server) != "" {
			return nil, errInvalid(t.start.fault(next.server))
		}
		for name := range was.models { // they follow in what is not their own
			if err := t.change(next, name, change{}); err != nil {
				return nil, err
			}
		}
	}
	t.publish(next)
	t.retire(was, next)
	return t.Settings(model), nil
}

// change replaces the setting of a model in next.
func (t *Tracer) change(next *state, model string, c change) error {
	v, own := c.apply(next.server.values(), next.models[model])
	if own == 0 {
		delete(next.models, model)
		return nil
	}
	s := t.newSetting(v, own)
	if fault := t.start.fault(s); fault != "" {
		return errInvalid(fault)
	}
	if next.models == nil {
		next.models = make(map[string]*setting)
	}
	next.models[model] = s
	return nil
}

func errInvalid(reason string) error {
	return status.Errorf(status.InvalidArgument, "Attempting to set invalid trace setting :%s", reason)
}

// publish makes the settings hold.
func (t *Tracer) publish(s *state) {
	t.state.Store(s)
	on := s.server.traces(t)
	for _, m := range s.models {
		on = on || m.traces(t)
	}
	t.on.Store(on)
}

// retire has the traces written of settings that are not in next any more.
func (t *Tracer) retire(was, next *state) {
	if t.file == nil {
		return
	}
	t.leaving = slices.DeleteFunc(t.leaving, func(s *setting) bool { return s.retire(t.file) })
	gone := func(s *setting) {
		if !s.retire(t.file) {
			t.leaving = append(t.leaving, s)
		}
	}
	if was.server != next.server {
		gone(was.server)
	}
	for name, m := range was.models {
		if next.models[name] != m {
			gone(m)
		}
	}
}

// fault returns why a setting that traces requests cannot do so, in the words that
// clients know; empty when it can, or traces none.
func (c Config) fault(s *setting) string {
	switch {
	case s.level == 0:
		return ""
	case s.rate == 0:
		return "sample rate must be non-zero"
	case c.Mode == ModeTriton && c.File == "":
		return "trace file name is not given"
	}
	return ""
}

// A change has new values, and which of them are set and which go back.
type change struct {
	values
	set, clear field
}

// apply returns the values and which of them are its own, after a change of a setting
// that else has those of base. The setting is nil when there was none.
func (c change) apply(base values, was *setting) (values, field) {
	v, own := base, c.set
	pick := func(f field, from values) {
		switch f {
		case levelField:
			v.level = from.level
		case rateField:
			v.rate = from.rate
		case countField:
			v.count = from.count
		case frequencyField:
			v.frequency = from.frequency
		}
	}
	for _, f := range fields {
		switch {
		case c.set&f != 0:
			pick(f, c.values)
		case c.clear&f == 0 && was != nil && was.own&f != 0:
			pick(f, was.values())
			own |= f
		}
	}
	return v, own
}

// parseChange reads the values that a client sent, or says what is wrong with them in
// the words that clients know. Settings that are not known are passed over.
func parseChange(changes map[string][]string) (c change, err error) {
	for name, value := range changes {
		if name == "trace_file" {
			return c, status.Errorf(status.Unsupported, "trace file location can not be updated through network protocol")
		}
		f := fields[name]
		if f == 0 {
			continue
		}
		if len(value) == 0 {
			c.clear |= f
			continue
		}
		if len(value) > 1 && f != levelField {
			return c, status.Errorf(status.InvalidArgument, "expect only 1 value for '%s'", name)
		}
		c.set |= f
		var n int64
		switch f {
		case levelField:
			c.level, err = parseLevels(value)
		case rateField:
			n, err = number(name, value[0], 0, math.MaxUint32)
			c.rate = uint32(n)
		case frequencyField:
			n, err = number(name, value[0], 0, math.MaxUint32)
			c.frequency = uint32(n)
		case countField:
			c.count, err = number(name, value[0], -1, math.MaxInt32)
			if n, isInt := strconv.ParseInt(value[0], 10, 32); isInt == nil && n < -1 {
				err = status.Errorf(status.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got:%d", n)
			}
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// parseLevels passes over levels that are not known.
func parseLevels(names []string) (l Level, err error) {
	for _, name := range names {
		switch name {
		case "TIMESTAMPS":
			l |= Timestamps
		case "TENSORS":
			l |= Tensors
		}
	}
	if len(names) > 1 && slices.Contains(names, "OFF") {
		return 0, status.Errorf(status.InvalidArgument, "Expect only one trace level 'OFF' is specified")
	}
	return l, nil
}

func number(name, text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < least || n > most):
		return 0, status.Errorf(status.InvalidArgument, "Unable to parse '%s', value is out of range [ %d, %d ], got: %s", name, least, most, text)
	case err != nil:
		return 0, status.Errorf(status.InvalidArgument, "Unable to parse '%s', got: %s", name, text)
	}
	return n, nil
}
