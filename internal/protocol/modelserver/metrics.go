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

// Counters count what TorchServe's metrics show.
type Counters struct {
	host string

	mu       sync.Mutex // protects the fields below
	answers  [3]float64 // 2XX, 4XX, 5XX
	requests map[[2]string]float64
	latency  map[[2]string]float64 // microseconds
}

// NewCounters returns counters at zero.
func NewCounters() *Counters {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Counters{host: host, requests: map[[2]string]float64{}, latency: map[[2]string]float64{}}
}

// Class returns the index and the name of the counter of a status.
func class(code int) (int, string) {
	switch {
	case code >= 200 && code < 300:
		return 0, "Requests2XX"
	case code >= 400 && code < 500:
		return 1, "Requests4XX"
	}
	return 2, "Requests5XX"
}

// Answered counts an answer.
func (c *Counters) Answered(code int) {
	i, _ := class(code)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[i]++
}

// Inference counts a request that a handler answered.
func (c *Counters) Inference(model, version string, took time.Duration) {
	if version == "" {
		version = "default"
	}
	k := [2]string{model, version}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[k]++
	c.latency[k] += float64(took) / 1000
}

// metrics answers with the counters in Prometheus' text format, with the details
// of the original's: a comma after the last label, and values with a point.
func (c *call) metrics() error {
	if c.method != "GET" {
		return errMethod()
	}
	var names []string
	for _, p := range c.query {
		if p.name == "name[]" {
			names = append(names, p.value)
		}
	}
	var b []byte
	if c.h.opt.Counters != nil {
		b = c.h.opt.Counters.appendText(nil, names)
	}
	c.x.SetType("text/plain; version=0.0.4; charset=utf-8")
	c.x.SetHeaders(c.h.appendHeaders(nil, c.id))
	c.x.SetBody(b)
	return nil
}

func (c *Counters) appendText(b []byte, names []string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	family := func(name, unit string, samples func(*bytes.Buffer)) {
		if len(names) > 0 && !slices.Contains(names, name) {
			return
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, "# HELP %s Torchserve prometheus counter metric with unit: %s\n# TYPE %s counter\n", name, unit, name)
		samples(&out)
		b = append(b, out.Bytes()...)
	}
	for i, name := range []string{"Requests2XX", "Requests4XX", "Requests5XX"} {
		family(name, "Count", func(out *bytes.Buffer) {
			if c.answers[i] > 0 {
				fmt.Fprintf(out, "%s{Level=\"Host\",Hostname=%q,} %s\n", name, c.host, number(c.answers[i]))
			}
		})
	}
	for _, f := range []struct {
		name, unit string
		values     map[[2]string]float64
	}{{"ts_inference_requests_total", "Count", c.requests}, {"ts_inference_latency_microseconds", "Microseconds", c.latency}} {
		family(f.name, f.unit, func(out *bytes.Buffer) {
			keys := slices.SortedFunc(maps.Keys(f.values), func(a, b [2]string) int { return strings.Compare(a[0]+"\x00"+a[1], b[0]+"\x00"+b[1]) })
			for _, k := range keys {
				fmt.Fprintf(out, "%s{model_name=%q,model_version=%q,hostname=%q,} %s\n", f.name, k[0], k[1], c.host, number(f.values[k]))
			}
		})
	}
	return b
}

// number writes a number with a point.
func number(f float64) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
