// Package traceset has the trace settings that clients see and change: those of the
// server, and those of single models, which else follow the server's. A server
// without a trace file traces nothing, and so does this one always: any level but OFF
// is refused. A Control is safe for concurrent use.
package traceset

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"

	"shoal/internal/status"
)

// The settings by their names on the wire, in the order in which they are shown.
var Names = []string{"trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode"}

// initial are the settings of a server that was told nothing.
var initial = map[string][]string{
	"trace_level": {"OFF"}, "trace_rate": {"1000"}, "trace_count": {"-1"}, "log_frequency": {"0"}, "trace_file": {""}, "trace_mode": {"triton"},
}

// A Control has the settings that hold now. The zero value has the initial ones.
type Control struct {
	mu     sync.Mutex // protects the fields below
	server map[string][]string
	models map[string]map[string][]string // what models have of their own
}

// Settings returns the values of all settings of a model, or of the server when its
// name is empty.
func (c *Control) Settings(model string) map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settingsLocked(model)
}

func (c *Control) settingsLocked(model string) map[string][]string {
	all := make(map[string][]string, len(Names))
	for _, name := range Names {
		all[name] = initial[name]
		if v, ok := c.server[name]; ok {
			all[name] = v
		}
		if v, ok := c.models[model][name]; ok {
			all[name] = v
		}
	}
	return all
}

// Update changes settings of a model, or of the server when its name is empty, and
// returns all of them. An empty value puts a setting back: the model's to the
// server's, the server's to the initial one. A change with a fault changes nothing.
func (c *Control) Update(model string, changes map[string][]string) (map[string][]string, error) {
	for name, value := range changes {
		if err := check(name, value); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.server
	if model != "" {
		own = c.models[model]
	}
	next := make(map[string][]string)
	for name, value := range own {
		next[name] = value
	}
	for name, value := range changes {
		if !slices.Contains(Names, name) {
			continue
		}
		if len(value) == 0 {
			delete(next, name)
		} else if name != "trace_level" || slices.Contains(value, "OFF") { // levels that are not known are passed over
			next[name] = value
		}
	}
	switch {
	case model == "":
		c.server = next
	case len(next) == 0:
		delete(c.models, model)
	default:
		if c.models == nil {
			c.models = make(map[string]map[string][]string)
		}
		c.models[model] = next
	}
	return c.settingsLocked(model), nil
}

// check says what is wrong with a value, in the words that clients know.
func check(name string, value []string) error {
	if name == "trace_file" {
		return status.Errorf(status.Unsupported, "trace file location can not be updated through network protocol")
	}
	if len(value) == 0 {
		return nil
	}
	switch name {
	case "trace_level":
		on := slices.Contains(value, "TIMESTAMPS") || slices.Contains(value, "TENSORS")
		switch off := slices.Contains(value, "OFF"); {
		case off && len(value) > 1:
			return status.Errorf(status.InvalidArgument, "Expect only one trace level 'OFF' is specified")
		case on:
			return status.Errorf(status.InvalidArgument, "Attempting to set invalid trace setting :trace file name is not given")
		}
	case "trace_rate", "log_frequency":
		return number(name, value[0], 0, math.MaxUint32)
	case "trace_count":
		if err := number(name, value[0], math.MinInt32, math.MaxInt32); err != nil {
			return err
		}
		if n, _ := strconv.ParseInt(value[0], 10, 64); n < -1 {
			return status.Errorf(status.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got:%d", n)
		}
	}
	return nil
}

func number(name, text string, least, most int64) error {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < least || n > most):
		return status.Errorf(status.InvalidArgument, "Unable to parse '%s', value is out of range [ %d, %d ], got: %s", name, least, most, text)
	case err != nil:
		return status.Errorf(status.InvalidArgument, "Unable to parse '%s', got: %s", name, text)
	}
	return nil
}
