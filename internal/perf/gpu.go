package perf

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shoal/internal/client"
	"shoal/internal/perf/result"
)

// The metrics that are read.
const (
	gpuUtilization = "nv_gpu_utilization"
	gpuPower       = "nv_gpu_power_usage"
	gpuUsed        = "nv_gpu_memory_used_bytes"
	gpuTotal       = "nv_gpu_memory_total_bytes"
)

var gpuFamilies = []string{gpuUtilization, gpuPower, gpuUsed, gpuTotal}

const (
	metricsTimeout = 5 * time.Second
	maxMetrics     = 64 << 20
)

// A gpuPoller reads a server's metrics while it is measured.
type gpuPoller struct {
	url    string
	http   *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	samples []map[string]map[string]float64
	missing map[string]bool
	failure error
	read    bool
}

// startGPU starts a poller; its close ends it.
func startGPU(url string, interval time.Duration) *gpuPoller {
	ctx, cancel := context.WithCancel(context.Background())
	g := &gpuPoller{url: url, http: &http.Client{Timeout: metricsTimeout}, cancel: cancel, missing: make(map[string]bool)}
	g.wg.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			g.poll(ctx)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return g
}

func (g *gpuPoller) close() {
	g.cancel()
	g.wg.Wait()
	g.http.CloseIdleConnections()
}

func (g *gpuPoller) poll(ctx context.Context) {
	sample, err := g.get(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			g.failure = err
		}
		return
	}
	g.read = true
	for _, name := range gpuFamilies {
		if len(sample[name]) == 0 {
			g.missing[name] = true
		}
	}
	g.samples = append(g.samples, sample)
}

func (g *gpuPoller) get(ctx context.Context) (map[string]map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := g.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", g.url, resp.Status)
	}
	return parseGPU(io.LimitReader(resp.Body, maxMetrics))
}

// parseGPU reads the GPU metrics from a Prometheus text: by metric and GPU.
func parseGPU(r io.Reader) (map[string]map[string]float64, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("the metrics cannot be read: %w", err)
	}
	sample := make(map[string]map[string]float64)
	for _, name := range gpuFamilies {
		for _, m := range families[name].GetMetric() {
			if sample[name] == nil {
				sample[name] = make(map[string]float64)
			}
			sample[name][gpuID(m)] = m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sample, nil
}

func gpuID(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "gpu_uuid" {
			return l.GetValue()
		}
	}
	return ""
}

// take returns what was read since the last call: means of utilization and
// power, the most memory used, the total memory.
func (g *gpuPoller) take() *result.GPUMetrics {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := foldGPU(g.samples)
	g.samples = nil
	return m
}

func foldGPU(samples []map[string]map[string]float64) *result.GPUMetrics {
	sum := make(map[string]map[string]float64)
	count := make(map[string]map[string]float64)
	most := make(map[string]float64)
	for _, s := range samples {
		for name, values := range s {
			if sum[name] == nil {
				sum[name], count[name] = make(map[string]float64), make(map[string]float64)
			}
			for gpu, v := range values {
				sum[name][gpu] += v
				count[name][gpu]++
				if name == gpuUsed {
					most[gpu] = max(most[gpu], v)
				}
			}
		}
	}
	for name, values := range sum {
		for gpu := range values {
			values[gpu] /= count[name][gpu]
		}
	}
	return &result.GPUMetrics{Utilization: sum[gpuUtilization], Power: sum[gpuPower], MemoryUsed: most, MemoryTotal: sum[gpuTotal]}
}

// warnings lists what could not be read, as perf_analyzer does.
func (g *gpuPoller) warnings() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.read && g.failure != nil {
		return []string{fmt.Sprintf("no metrics could be read: %v; --metrics-url says where they are", g.failure)}
	}
	var list []string
	for _, name := range gpuFamilies {
		if g.missing[name] {
			list = append(list, fmt.Sprintf("Unable to parse '%s' metric.", name))
		}
	}
	return list
}

// MetricsURL returns the default address of a server's metrics, as in
// perf_analyzer: the server's host, and the usual port and path.
func MetricsURL(given, host string) string {
	if given == "" {
		host = client.HostOf(host)
		given = strings.Split(host, ":")[0] + ":8002/metrics"
		if strings.HasPrefix(host, "[") {
			given = host[:strings.Index(host, "]")+1] + ":8002/metrics"
		}
	}
	if !strings.Contains(given, "://") {
		given = "http://" + given
	}
	return given
}
