package modelstore

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// Encode returns v as the JSON text of the store's dialect, without the last line
// break.
func (s *Store) Encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("BUG: modelstore: " + err.Error()) // only our own types
	}
	text := bytes.TrimRight(b.Bytes(), "\n")
	if s.opt.Dialect == MMS {
		for _, c := range []struct{ char, escaped string }{{"<", `\u003c`}, {">", `\u003e`}, {"&", `\u0026`}, {"=", `\u003d`}, {"'", `\u0027`}} {
			text = bytes.ReplaceAll(text, []byte(c.char), []byte(c.escaped)) // they are in strings only
		}
	}
	return text
}

// A Listed is a model in a list.
type Listed struct {
	Name string `json:"modelName"`
	URL  string `json:"modelUrl"`
}

// List returns a page of the models, as JSON.
func (s *Store) List(limit, token int) []byte {
	if limit > 100 || limit < 0 {
		limit = 100
	}
	token = max(token, 0)
	models := s.sorted()
	page := struct {
		Next   string   `json:"nextPageToken,omitempty"`
		Models []Listed `json:"models"`
	}{Models: []Listed{}}
	if next := token + limit; next <= len(models) {
		page.Next = strconv.Itoa(next)
	}
	for _, m := range models[min(token, len(models)):min(token+limit, len(models))] {
		page.Models = append(page.Models, Listed{m.name, m.versions[m.def].url})
	}
	return s.Encode(page)
}

type shownWorker struct {
	ID     string `json:"id"`
	Start  string `json:"startTime"`
	Status string `json:"status"`
	GPU    bool   `json:"gpu"`
	Memory int64  `json:"memoryUsage"`
}

type shown struct {
	Name    string        `json:"modelName"`
	Version string        `json:"modelVersion,omitempty"`
	URL     string        `json:"modelUrl"`
	Engine  string        `json:"engine,omitempty"`
	Runtime string        `json:"runtime"`
	Min     int           `json:"minWorkers"`
	Max     int           `json:"maxWorkers"`
	Batch   int           `json:"batchSize"`
	Delay   int           `json:"maxBatchDelay"`
	Startup bool          `json:"loadedAtStartup"`
	Workers []shownWorker `json:"workers"`
}

type shownWorkerTS struct {
	ID       string `json:"id"`
	Start    string `json:"startTime"`
	Status   string `json:"status"`
	Memory   int64  `json:"memoryUsage"`
	PID      int    `json:"pid"`
	GPU      bool   `json:"gpu"`
	GPUUsage string `json:"gpuUsage"`
}

type shownTS struct {
	Name               string          `json:"modelName"`
	Version            string          `json:"modelVersion"`
	URL                string          `json:"modelUrl"`
	Runtime            string          `json:"runtime"`
	Min                int             `json:"minWorkers"`
	Max                int             `json:"maxWorkers"`
	Batch              int             `json:"batchSize"`
	Delay              int             `json:"maxBatchDelay"`
	ResponseTimeout    int             `json:"responseTimeout"`
	StartupTimeout     int             `json:"startupTimeout"`
	MaxRetryTimeout    int             `json:"maxRetryTimeoutInSec"`
	ClientTimeout      int             `json:"clientTimeoutInMills"`
	ParallelType       string          `json:"parallelType"`
	ParallelLevel      int             `json:"parallelLevel"`
	DeviceType         string          `json:"deviceType"`
	ContinuousBatching bool            `json:"continuousBatching"`
	UseJobTicket       bool            `json:"useJobTicket"`
	UseVenv            bool            `json:"useVenv"`
	Stateful           bool            `json:"stateful"`
	SequenceIdle       int             `json:"sequenceMaxIdleMSec"`
	SequenceTimeout    int             `json:"sequenceTimeoutMSec"`
	MaxNumSequence     int             `json:"maxNumSequence"`
	MaxSequenceQueue   int             `json:"maxSequenceJobQueueSize"`
	Startup            bool            `json:"loadedAtStartup"`
	Workers            []shownWorkerTS `json:"workers"`
	Queue              struct {
		Remaining int64 `json:"remainingCapacity"`
		Pending   int64 `json:"pendingRequests"`
	} `json:"jobQueueStatus"`
	Customized json.RawMessage `json:"customizedMetadata,omitempty"`
}

// All is the version that stands for all of a model.
const All = "all"

// Describe returns the description of a model as JSON. TorchServe's is a list, of
// one version or of All. Customized, unless nil, is what the handler adds to it.
func (s *Store) Describe(name, version string, customized json.RawMessage) ([]byte, error) {
	if s.opt.Dialect == MMS {
		v, err := s.Find(name, "")
		if err != nil {
			return nil, err
		}
		return s.Encode(s.show(v)), nil
	}
	var list []*Version
	if version == All {
		m := (*s.models.Load())[name]
		if m == nil {
			return nil, errNotFound(name)
		}
		for _, n := range slices.Sorted(maps.Keys(m.versions)) {
			list = append(list, m.versions[n])
		}
	} else {
		v, err := s.Find(name, version)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	out := make([]shownTS, len(list))
	for i, v := range list {
		out[i] = s.showTS(v)
		out[i].Customized = customized
	}
	return s.Encode(out), nil
}

const stampLayout = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(stampLayout) }

// state is a version at one moment.
type state struct {
	min, max int
	workers  []worker
	loaded   bool
	failed   bool
}

func (v *Version) state() state {
	v.mu.Lock()
	defer v.mu.Unlock()
	return state{v.min, v.max, slices.Clone(v.workers), v.loaded, v.failed}
}

// status is the state of workers in the words of clients.
func (st *state) status() string {
	if st.loaded {
		return "READY"
	}
	return "UNLOADING"
}

// processes returns the processes behind the workers and how many requests wait.
func (s *Store) processes(v *Version, st *state) ([]backend.Worker, int64) {
	if !st.loaded {
		return nil, 0
	}
	stats, err := s.opt.Engine.Statistics(v.served, infer.LatestVersion)
	if err != nil || len(stats) == 0 {
		return nil, 0
	}
	return stats[0].Workers, stats[0].Pending
}

func (s *Store) show(v *Version) shown {
	st := v.state()
	processes, _ := s.processes(v, &st)
	d := shown{
		Name: v.name, Version: v.version, URL: v.url, Runtime: v.runtime, Min: st.min, Max: st.max,
		Batch: v.batchSize, Delay: v.batchDelay, Startup: v.startup, Workers: []shownWorker{},
	}
	if e := v.manifest.Engine; e != nil {
		d.Engine = e.Name
	}
	for i, w := range st.workers {
		sw := shownWorker{ID: w.id, Start: stamp(w.start), Status: st.status(), GPU: s.opt.GPUs > 0}
		if i < len(processes) {
			sw.Memory = processes[i].Resident
		}
		d.Workers = append(d.Workers, sw)
	}
	return d
}

func (s *Store) showTS(v *Version) shownTS {
	st := v.state()
	processes, pending := s.processes(v, &st)
	d := shownTS{
		Name: v.name, Version: v.version, URL: v.url, Runtime: v.runtime, Min: st.min, Max: st.max,
		Batch: v.batchSize, Delay: v.batchDelay, Startup: v.startup, Workers: []shownWorkerTS{},
		ResponseTimeout: int(v.timeouts.response / time.Second), StartupTimeout: int(v.timeouts.startup / time.Second),
		MaxRetryTimeout: v.configured("maxRetryTimeoutInSec", 300), ClientTimeout: v.configured("clientTimeoutInMills", 0), DeviceType: "cpu",
	}
	usage := "N/A"
	if s.opt.GPUs > 0 {
		d.DeviceType = "gpu"
	}
	for i, w := range st.workers {
		sw := shownWorkerTS{ID: w.id, Start: stamp(w.start), Status: st.status(), GPU: s.opt.GPUs > 0, GPUUsage: usage}
		if i < len(processes) {
			sw.Memory, sw.PID = processes[i].Resident, processes[i].PID
		}
		d.Workers = append(d.Workers, sw)
	}
	d.Queue.Pending = pending
	d.Queue.Remaining = max(int64(v.queueSize)-pending, 0)
	return d
}

// Health returns how the models are doing: the word for clients, and whether they
// have all their workers.
func (s *Store) Health() (word string, well bool) {
	wanted, have, short := 0, 0, false
	for _, m := range *s.models.Load() {
		for n, v := range m.versions {
			st := v.state()
			live := len(st.workers)
			if st.failed || st.loaded && !s.opt.Engine.ModelReady(v.served, infer.LatestVersion) {
				live = 0
			}
			wanted, have = wanted+st.min, have+live
			if n == m.def && live < st.min {
				short = true
			}
		}
	}
	switch {
	case s.opt.Dialect == TorchServe && short:
		return "Unhealthy", false
	case s.opt.Dialect == TorchServe || have >= wanted:
		return "Healthy", true
	case have > 0:
		return "Partial Healthy", true
	}
	return "Unhealthy", true
}

// Ready reports whether a model has a worker.
func (s *Store) Ready(name string) (bool, error) {
	v, err := s.Find(name, "")
	if err != nil {
		return false, err
	}
	return v.HasWorkers(), nil
}
