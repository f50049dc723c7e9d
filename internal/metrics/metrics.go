// Package metrics is the Prometheus endpoint: the models' counters under
// Triton's names, further ones under shoal_, and the process's own. Start
// returns a handler that reads the engine when it is scraped, and that the
// caller must Close; nothing here is on a request's path.
package metrics

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"shoal/internal/backend/cuda"
	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/respcache"
)

// A Source returns the counters of every ready version.
type Source interface {
	Statistics(name string, version int64) ([]engine.Statistics, error)
}

// Options are what is measured and how often.
type Options struct {
	Settings Settings
	// CPU adds gauges of the machine, read every Interval.
	CPU      bool
	Interval time.Duration
	// GPUs reads the state of the machine's GPUs every Interval; nil is none.
	GPUs func() ([]cuda.Usage, error)
	// Memory is the budget of requests and answers in flight; nil is none.
	Memory *inflight.Budget
	// Cache is the cache of responses; nil is none.
	Cache *respcache.Cache
	// Sessions are those over shared memory; nil when they are off.
	Sessions Sessions
	// User has models' own metrics; nil is none.
	User UserSource
	// Rejects counts rejected requests; nil is none.
	Rejects *reject.Counter
	// LogDropped returns how many lines of the log were dropped; nil is unknown.
	LogDropped func() uint64
	// TraceDropped returns how many traces or spans were dropped; nil is unknown.
	TraceDropped func() uint64
	Log          *slog.Logger
}

// Metrics is the handler of GET /metrics.
type Metrics struct {
	mux  *http.ServeMux
	done chan struct{}
	wg   sync.WaitGroup
}

// Start returns the handler and begins to sample the machine.
func Start(opt Options, src Source) *Metrics {
	m := &Metrics{mux: http.NewServeMux(), done: make(chan struct{})}
	reg := prometheus.NewRegistry()
	models := &modelCollector{src: src, settings: opt.Settings, rejects: opt.Rejects}
	reg.MustRegister(pinnedCollector{}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if opt.LogDropped != nil {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "shoal_log_lines_dropped_total",
			Help: "Lines of the log that were dropped because they could not be written, or not fast enough",
		}, func() float64 { return float64(opt.LogDropped()) }))
	}
	if opt.TraceDropped != nil {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "shoal_traces_dropped_total",
			Help: "Traces, or in the mode opentelemetry spans, that were dropped because the disk or the receiver failed or was too slow",
		}, func() float64 { return float64(opt.TraceDropped()) }))
	}
	if opt.Memory != nil {
		reg.MustRegister(memoryCollectors(opt.Memory)...)
	}
	if opt.Cache != nil {
		reg.MustRegister(cacheCollector{opt.Cache})
	}
	if opt.Sessions != nil {
		reg.MustRegister(sessionCollectors(opt.Sessions)...)
	}
	if opt.User != nil {
		reg.MustRegister(userCollector{opt.User})
	}
	if opt.Settings.Summaries {
		models.windows = newWindows()
		m.every(windowStep, func() { models.windows.turn(src) })
	}
	if opt.CPU {
		if cpu := newCPU(); cpu != nil {
			reg.MustRegister(cpu)
			m.every(opt.Interval, cpu.read)
		}
	}
	if opt.GPUs != nil {
		if gpus := startGPUs(opt.GPUs); gpus != nil {
			reg.MustRegister(gpus)
			m.every(opt.Interval, gpus.read)
		}
	}
	m.mux.Handle("/metrics", handler(reg, models, opt.Log))
	return m
}

// every calls f at each interval until Close.
func (m *Metrics) every(d time.Duration, f func()) {
	m.wg.Go(func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-m.done:
				return
			}
		}
	})
}

// Close stops sampling. The handler still answers.
func (m *Metrics) Close() {
	close(m.done)
	m.wg.Wait()
}

// ServeHTTP implements http.Handler.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// handler answers with protobuf, which has the native histograms, when the
// client prefers it, and otherwise with text. There is no OpenMetrics: its
// counters must end in _total, and Triton's do not.
func handler(reg *prometheus.Registry, models *modelCollector, log *slog.Logger) http.Handler {
	var kept keptPage
	second := prometheus.NewRegistry()
	second.MustRegister(models)
	protobuf := promhttp.HandlerFor(prometheus.Gatherers{reg, second}, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"error":"Method Not Allowed"}`))
			return
		}
		if expfmt.Negotiate(r.Header).FormatType() != expfmt.TypeTextPlain {
			protobuf.ServeHTTP(w, r)
			return
		}
		families, err := reg.Gather()
		if err != nil {
			log.Error("gathering metrics", "err", err)
		}
		p := kept.take()
		defer kept.put(p)
		if err := models.emit(&emitter{page: p}); err != nil {
			log.Error("gathering the models' metrics", "err", err)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = p.writeTo(w, families) // a client that is gone needs no answer
	})
}
