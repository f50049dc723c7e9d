package trace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Mode is where traces go.
type Mode uint8

// The modes.
const (
	ModeTriton        Mode = iota // to a file
	ModeOpenTelemetry             // to a receiver
)

func (m Mode) String() string {
	if m == ModeOpenTelemetry {
		return "opentelemetry"
	}
	return "triton"
}

// A Config is how a tracer starts.
type Config struct {
	Mode          Mode
	Level         Level
	Rate          uint32 // 1 in so many requests; 0 for none but those of callers that trace
	Count         int64  // how many traces to take; -1 for no limit
	LogFrequency  uint32
	File          string
	OpenTelemetry OpenTelemetry
}

// OpenTelemetry are the settings of that mode.
type OpenTelemetry struct {
	URL       string   // where to send spans; empty for the usual place
	Resource  []string // what describes this server, each name=value
	QueueSize uint32   // how many spans may wait to be sent
	BatchSize uint32   // how many are sent together
	Delay     time.Duration
}

// DefaultConfig returns the settings of a server that was told nothing.
func DefaultConfig() Config {
	return Config{Rate: 1000, Count: -1, OpenTelemetry: OpenTelemetry{QueueSize: 2048, BatchSize: 512, Delay: 5 * time.Second}}
}

func (c Config) values() values {
	return values{level: c.Level, rate: c.Rate, count: c.Count, frequency: c.LogFrequency}
}

// Silent returns why nothing is traced although the level asks for it; empty when it
// does not, or requests are traced.
func (c Config) Silent() string {
	s := (*Tracer)(nil).newSetting(c.values(), 0)
	switch {
	case c.Mode == ModeTriton && c.fault(s) != "":
		return c.fault(s)
	case c.Mode == ModeOpenTelemetry && c.Level == Tensors:
		return "the mode opentelemetry has no level TENSORS"
	}
	return ""
}

// settings returns the settings as clients see them.
func (o OpenTelemetry) settings() (list []Setting) {
	add := func(name, value string) { list = append(list, Setting{name, []string{value}}) }
	if o.URL != "" {
		add("url", o.URL)
	}
	if len(o.Resource) > 0 {
		add("resource", strings.Join(o.Resource, ","))
	}
	add("bsp_schedule_delay", strconv.FormatInt(o.Delay.Milliseconds(), 10))
	add("bsp_max_export_batch_size", strconv.FormatUint(uint64(o.BatchSize), 10))
	add("bsp_max_queue_size", strconv.FormatUint(uint64(o.QueueSize), 10))
	return list
}

// bspVariables are the environment's names for settings of the mode opentelemetry.
var bspVariables = []struct{ setting, variable string }{
	{"bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE"},
	{"bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY"},
	{"bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"},
}

// ParseConfig reads settings as they are given on the command line, each
// [mode,]setting=value, and the variables of the environment that stand for some.
func ParseConfig(args []string, getenv func(string) string) (Config, error) {
	c := DefaultConfig()
	for _, v := range bspVariables {
		if text := getenv(v.variable); text != "" {
			if err := c.set("opentelemetry", v.setting, text); err != nil {
				return c, fmt.Errorf("the environment variable %s: %w", v.variable, err)
			}
		}
	}
	off := false
	for _, arg := range args {
		head, _, _ := strings.Cut(arg, "=")
		mode, setting, scoped := strings.Cut(head, ",")
		if !scoped {
			mode, setting = "", head
		}
		value := strings.TrimPrefix(arg[len(head):], "=")
		if setting == "" || value == "" {
			return c, fmt.Errorf("%q, want [mode,]setting=value, such as level=TIMESTAMPS or triton,file=trace.json", arg)
		}
		if err := c.set(strings.ToLower(mode), setting, value); err != nil {
			return c, fmt.Errorf("%q: %w", arg, err)
		}
		off = off || mode == "" && setting == "level" && c.Level == 0
		if off {
			c.Level = 0 // whatever else is given
		}
	}
	if o := c.OpenTelemetry; o.BatchSize > o.QueueSize {
		return c, fmt.Errorf("opentelemetry,bsp_max_export_batch_size is %d, want at most bsp_max_queue_size (%d)", o.BatchSize, o.QueueSize)
	}
	return c, nil
}

// set sets one setting of a mode, or one for all when the mode is empty.
func (c *Config) set(mode, setting, value string) (err error) {
	o := &c.OpenTelemetry
	switch mode + "," + setting {
	case ",mode":
		c.Mode, err = parseMode(value)
	case ",level":
		err = c.addLevel(value)
	case ",rate":
		c.Rate, err = parseUint32(value, 0)
	case ",count":
		c.Count, err = strconv.ParseInt(value, 10, 32)
		if err != nil || c.Count < -1 {
			err = fmt.Errorf("want a number of traces, or -1 for no limit")
		}
	case "triton,file":
		c.File = value
	case "triton,log-frequency":
		c.LogFrequency, err = parseUint32(value, 0)
	case "opentelemetry,url":
		o.URL = value
	case "opentelemetry,resource":
		if name, _, ok := strings.Cut(value, "="); !ok || name == "" {
			return fmt.Errorf("want opentelemetry,resource=name=value")
		}
		o.Resource = append(o.Resource, value)
	case "opentelemetry,bsp_max_queue_size":
		o.QueueSize, err = parseUint32(value, 1)
	case "opentelemetry,bsp_max_export_batch_size":
		o.BatchSize, err = parseUint32(value, 1)
	case "opentelemetry,bsp_schedule_delay":
		var ms uint32
		ms, err = parseUint32(value, 0)
		o.Delay = max(time.Duration(ms), 1) * time.Millisecond
	default:
		if mode != "" {
			if _, err := parseMode(mode); err != nil {
				return err
			}
		}
		return fmt.Errorf("there is no such setting; there are level, rate, count, mode; triton,file and triton,log-frequency; opentelemetry,url, opentelemetry,resource and opentelemetry,bsp_max_queue_size, _schedule_delay and _max_export_batch_size")
	}
	return err
}

// levels are the names of levels on the command line, older ones too.
var levels = map[string]Level{
	"off": 0, "false": 0, "timestamps": Timestamps, "tensors": Tensors,
	"true": Timestamps, "on": Timestamps, "min": Timestamps, "max": Timestamps,
}

func (c *Config) addLevel(name string) error {
	l, ok := levels[strings.ToLower(name)]
	if !ok {
		return fmt.Errorf("want OFF, TIMESTAMPS or TENSORS")
	}
	if c.Level |= l; l == 0 {
		c.Level = 0
	}
	return nil
}

func parseMode(name string) (Mode, error) {
	for _, m := range []Mode{ModeTriton, ModeOpenTelemetry} {
		if strings.EqualFold(name, m.String()) {
			return m, nil
		}
	}
	return 0, fmt.Errorf("the mode is %q, want triton or opentelemetry", name)
}

func parseUint32(text string, least uint64) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < least {
		return 0, fmt.Errorf("want a whole number from %d to %d", least, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}
