// Package usermetric keeps the metrics of models' own code: those that a Python
// model makes with MetricFamily. Workers' operations come in through Apply; the
// Prometheus endpoint reads Families. A Registry is safe for concurrent use.
package usermetric

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"shoal/internal/status"
)

// maxMetrics bounds the labelled metrics. A model that labels by request would
// otherwise fill the memory, here and in Prometheus.
const maxMetrics = 10000

// A Registry has all models' own metrics. The zero value is empty.
type Registry struct {
	mu       sync.Mutex // protects the fields below
	families map[string]*family
	count    int // of labelled metrics
}

type family struct {
	kind    Kind
	help    string
	owners  owners
	metrics map[string]*metric // by their labels
}

type metric struct {
	labels  map[string]string
	owners  owners
	value   float64 // of a counter or gauge; the sum of a histogram
	count   uint64
	bounds  []float64
	buckets []uint64 // not cumulative; the last is beyond all bounds
}

// owners counts how often each owner announced or declared something, which is
// removed when there are no owners left. A worker that died has not left: its
// counts stay until its model is unloaded.
type owners map[string]int

// use records that an owner needs something, counted again if more.
func (o owners) use(owner string, more bool) {
	if more || o[owner] == 0 {
		o[owner]++
	}
}

// leave records that an owner needs something once less, and reports whether
// nobody needs it any more.
func (o owners) leave(owner string) bool {
	if o[owner]--; o[owner] <= 0 {
		delete(o, owner)
	}
	return len(o) == 0
}

// Apply carries out an operation. It returns the metric's value after it, for a
// histogram the sum of the observations. An operation on a metric that was not
// declared declares it.
func (r *Registry) Apply(op Op) (float64, error) {
	if err := op.check(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if op.Act == Forget || op.Act == Leave {
		r.forgetLocked(op)
		return 0, nil
	}
	f, err := r.familyLocked(op)
	if err != nil || op.Act == Announce {
		return 0, err
	}
	m, err := r.metricLocked(f, op)
	if err != nil {
		return 0, err
	}
	if err := m.apply(f.kind, op); err != nil {
		return 0, err
	}
	return m.value, nil
}

func (r *Registry) familyLocked(op Op) (*family, error) {
	if f := r.families[op.Family]; f != nil {
		if f.kind != op.Kind {
			return nil, status.Errorf(status.InvalidArgument, "metric family '%s' is a %s already and cannot be a %s too", op.Family, f.kind, op.Kind)
		}
		f.owners.use(op.Owner, op.Act == Announce)
		return f, nil
	}
	if len(r.families) >= maxMetrics {
		return nil, status.Errorf(status.Unavailable, "there are %d metric families of models' own, and more are not kept", len(r.families))
	}
	f := &family{kind: op.Kind, help: op.Help, owners: owners{op.Owner: 1}, metrics: make(map[string]*metric)}
	if r.families == nil {
		r.families = make(map[string]*family)
	}
	r.families[op.Family] = f
	return f, nil
}

func (r *Registry) metricLocked(f *family, op Op) (*metric, error) {
	key := op.key()
	m := f.metrics[key]
	if m == nil {
		if r.count >= maxMetrics {
			return nil, status.Errorf(status.Unavailable, "there are %d metrics of models' own, and more are not kept; use fewer values for the labels of '%s'", r.count, op.Family)
		}
		m = &metric{labels: maps.Clone(op.Labels), owners: make(owners)}
		if f.kind == Histogram {
			m.bounds, m.buckets = slices.Clone(op.Buckets), make([]uint64, len(op.Buckets)+1)
		}
		f.metrics[key] = m
		r.count++
	}
	m.owners.use(op.Owner, op.Act == Declare)
	return m, nil
}

func (m *metric) apply(kind Kind, op Op) error {
	switch op.Act {
	case Increment:
		if kind == Counter && op.Value < 0 {
			return status.Errorf(status.InvalidArgument, "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.")
		}
		m.value += op.Value
	case Set:
		m.value = op.Value
	case Observe:
		i, _ := slices.BinarySearch(m.bounds, op.Value)
		m.buckets[i]++
		m.count++
		m.value += op.Value
	}
	return nil
}

// forgetLocked removes a metric, or a family with all its metrics, when nobody
// needs it any more.
func (r *Registry) forgetLocked(op Op) {
	f := r.families[op.Family]
	if f == nil {
		return
	}
	if op.Act == Leave {
		if f.owners.leave(op.Owner) {
			r.count -= len(f.metrics)
			delete(r.families, op.Family)
		}
		return
	}
	if m := f.metrics[op.key()]; m != nil && m.owners.leave(op.Owner) {
		delete(f.metrics, op.key())
		r.count--
	}
}

// Drop removes the metrics that only that owner uses: its model was unloaded.
func (r *Registry) Drop(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, f := range r.families {
		for key, m := range f.metrics {
			if delete(m.owners, owner); len(m.owners) == 0 {
				delete(f.metrics, key)
				r.count--
			}
		}
		if delete(f.owners, owner); len(f.owners) == 0 {
			delete(r.families, name)
		}
	}
}

// A Family is a snapshot of the metrics of one name.
type Family struct {
	Name, Help string
	Kind       Kind
	Metrics    []Metric
}

// A Metric is a snapshot of one metric.
type Metric struct {
	Labels  map[string]string
	Value   float64 // of a counter or gauge; the sum of a histogram
	Count   uint64  // of a histogram
	Buckets map[float64]uint64
}

// Families returns everything as it is now, sorted by name and labels.
func (r *Registry) Families() []Family {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Family
	for _, name := range slices.Sorted(maps.Keys(r.families)) {
		f := r.families[name]
		s := Family{Name: name, Help: f.help, Kind: f.kind}
		for _, key := range slices.Sorted(maps.Keys(f.metrics)) {
			s.Metrics = append(s.Metrics, f.metrics[key].snapshot())
		}
		out = append(out, s)
	}
	return out
}

func (m *metric) snapshot() Metric {
	s := Metric{Labels: maps.Clone(m.labels), Value: m.value, Count: m.count}
	if m.buckets == nil {
		return s
	}
	s.Buckets = make(map[float64]uint64, len(m.bounds))
	var sum uint64
	for i, bound := range m.bounds {
		sum += m.buckets[i]
		s.Buckets[bound] = sum
	}
	return s
}

// key identifies a metric of a family by its labels.
func (op Op) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(op.Labels)) {
		b.WriteString(name)
		b.WriteByte(0)
		b.WriteString(op.Labels[name])
		b.WriteByte(0)
	}
	return b.String()
}

// finite reports whether a value is neither NaN nor infinite.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
