package modelserver

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Meter has the metrics of the original servers: it keeps the values for
// Prometheus and writes each as a line of their log of metrics. All methods may be
// called from many goroutines.
type Meter struct {
	opt  MeterOptions
	host string

	mu       sync.Mutex // protects the fields below
	families map[string]*family
	cpu      cpuTimes
}

// MeterOptions are the settings of a meter.
type MeterOptions struct {
	TorchServe bool
	// Log, unless nil, gets a line for each value.
	Log func(line string)
	// Only, unless nil, are the families that Prometheus sees.
	Only []string
}

// A family is a metric with its values by their dimensions.
type family struct {
	kind, unit string
	values     map[string]float64
}

// families are the metrics that the originals have: kind and unit.
var families = map[string][2]string{
	"Requests2XX": {"counter", "Count"}, "Requests4XX": {"counter", "Count"}, "Requests5XX": {"counter", "Count"},
	"ts_inference_requests_total":       {"counter", "Count"},
	"ts_inference_latency_microseconds": {"counter", "Microseconds"},
	"ts_queue_latency_microseconds":     {"counter", "Microseconds"},
	"QueueTime":                         {"gauge", "Milliseconds"},
	"WorkerThreadTime":                  {"gauge", "Milliseconds"},
	"WorkerLoadTime":                    {"gauge", "Milliseconds"},
	"CPUUtilization":                    {"gauge", "Percent"},
	"MemoryUsed":                        {"gauge", "Megabytes"},
	"MemoryAvailable":                   {"gauge", "Megabytes"},
	"MemoryUtilization":                 {"gauge", "Percent"},
	"DiskUsage":                         {"gauge", "Gigabytes"},
	"DiskUtilization":                   {"gauge", "Percent"},
	"DiskAvailable":                     {"gauge", "Gigabytes"},
	"GPUMemoryUtilization":              {"gauge", "Percent"},
	"GPUMemoryUsed":                     {"gauge", "Megabytes"},
	"GPUUtilization":                    {"gauge", "Percent"},
	"HandlerTime":                       {"gauge", "ms"},
	"PredictionTime":                    {"gauge", "ms"},
}

// LegacyFamilies are those that Prometheus sees with metrics_mode=legacy.
var LegacyFamilies = []string{"ts_inference_requests_total", "ts_inference_latency_microseconds", "ts_queue_latency_microseconds"}

// NewMeter returns a meter without values.
func NewMeter(opt MeterOptions) *Meter {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	m := &Meter{opt: opt, host: host, families: map[string]*family{}}
	for name, f := range families {
		m.families[name] = &family{kind: f[0], unit: f[1], values: map[string]float64{}}
	}
	return m
}

// hostLevel is the dimension of values about the whole server.
const hostLevel = "Level:Host"

// value records a value. Dims are its dimensions as in the log, name:value with commas between.
func (m *Meter) value(name, dims string, v float64) {
	m.mu.Lock()
	f := m.families[name]
	if f.kind == "counter" {
		f.values[dims] += v
	} else {
		f.values[dims] = v
	}
	unit := f.unit
	m.mu.Unlock()
	m.line(name+"."+unit, dims, v)
}

// line writes a line of the log. TorchServe writes whole numbers with a point.
func (m *Meter) line(name, dims string, v float64) {
	if m.opt.Log == nil {
		return
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if m.opt.TorchServe {
		text = number(v)
	}
	m.opt.Log(name + ":" + text + "|#" + dims + "|#hostname:" + m.host + ",timestamp:" + strconv.FormatInt(time.Now().Unix(), 10))
}

// Answered counts an answer.
func (m *Meter) Answered(code int) {
	name := "Requests5XX"
	switch {
	case code >= 200 && code < 300:
		name = "Requests2XX"
	case code >= 400 && code < 500:
		name = "Requests4XX"
	}
	m.value(name, hostLevel, 1)
}

// Inference records a request that a handler answered: how long it took in all, and
// for how much of that the handler's worker had it.
func (m *Meter) Inference(model, version string, took, ran time.Duration) {
	if !m.opt.TorchServe {
		return
	}
	if version == "" {
		version = "default"
	}
	dims := "model_name:" + model + ",model_version:" + version
	queued := max(took-ran, 0)
	m.value("ts_inference_requests_total", dims, 1)
	m.value("ts_inference_latency_microseconds", dims, float64(took)/1e3)
	m.value("ts_queue_latency_microseconds", dims, float64(queued)/1e3)
	m.value("QueueTime", hostLevel, float64(queued.Milliseconds()))
}

// WorkerLoaded records how long a worker took to load its model.
func (m *Meter) WorkerLoaded(worker string, took time.Duration) {
	ms := float64(took.Milliseconds())
	if m.opt.TorchServe {
		m.value("WorkerLoadTime", "WorkerName:"+worker+","+hostLevel, ms)
		return
	}
	m.line(worker+".ms", hostLevel, ms)
}

// Handler records a handler's own metric, a line of its log:
// name.unit:value|#dimensions|#hostname:...
func (m *Meter) Handler(line string) {
	name, rest, ok := strings.Cut(line, ".")
	_, rest, isValue := strings.Cut(rest, ":")
	text, rest, hasDims := strings.Cut(rest, "|#")
	dims, _, _ := strings.Cut(rest, "|#")
	if !ok || !isValue || !hasDims || name != "PredictionTime" && name != "HandlerTime" {
		return
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		m.mu.Lock()
		m.families[name].values[dims] = v
		m.mu.Unlock()
	}
}

// System records the state of the machine.
func (m *Meter) System() {
	m.mu.Lock()
	samples := system(&m.cpu)
	m.mu.Unlock()
	for _, s := range samples {
		m.value(s.name, hostLevel, s.value)
	}
}

// appendText appends the values in Prometheus' text format, with the details of the
// original's: a comma after the last label, and values with a point. Names are
// those that the client asks for; none means all.
func (m *Meter) appendText(b []byte, names []string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := bytes.NewBuffer(b)
	for _, name := range slices.Sorted(maps.Keys(m.families)) {
		if len(names) > 0 && !slices.Contains(names, name) || m.opt.Only != nil && !slices.Contains(m.opt.Only, name) {
			continue
		}
		f, host := m.families[name], "Hostname"
		if strings.HasPrefix(name, "ts_") {
			host = "hostname"
		}
		fmt.Fprintf(out, "# HELP %s Torchserve prometheus %s metric with unit: %s\n# TYPE %s %s\n", name, f.kind, f.unit, name, f.kind)
		for _, dims := range slices.Sorted(maps.Keys(f.values)) {
			out.WriteString(name + "{")
			for item := range strings.SplitSeq(dims, ",") {
				label, value, _ := strings.Cut(item, ":")
				fmt.Fprintf(out, "%s=%q,", label, value)
			}
			fmt.Fprintf(out, "%s=%q,} %s\n", host, m.host, number(f.values[dims]))
		}
	}
	return out.Bytes()
}

// number writes a number with a point.
func number(f float64) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
