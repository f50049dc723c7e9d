package metrics

import (
	"cmp"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"shoal/internal/engine"
	counted "shoal/internal/histogram"
)

// An emitter takes the series of all models: for the library, which makes
// protobuf of them, or as text. A server may have thousands of models, and the
// library's way to text takes many times as long as the text itself.
type emitter struct {
	ch   chan<- prometheus.Metric // nil for text
	page *page
}

// labels are the labels of a version's series.
type labels struct {
	model, namespace, version string
	gpu                       string // its UUID; empty for none
	tags                      map[string]string
	head, tail                string // as text: up to the model's name and namespace, and the version
}

// newLabels returns the labels of a version of a model, which may be about one
// GPU.
func newLabels(model, namespace, version, gpu string, tags map[string]string) *labels {
	l := &labels{model: model, namespace: namespace, version: version, gpu: gpu, tags: tags}
	var room [128]byte
	b := append(room[:0], '{')
	for _, key := range slices.Sorted(maps.Keys(tags)) { // they come first, since they begin with _
		b = append(appendPair(b, "_"+key, strings.ToValidUTF8(tags[key], "\uFFFD")), ',')
	}
	if gpu != "" {
		b = append(appendPair(b, "gpu_uuid", gpu), ',')
	}
	b = appendPair(b, "model", strings.ToValidUTF8(model, "\uFFFD"))
	if namespace != "" {
		b = appendPair(append(b, ','), "namespace", strings.ToValidUTF8(namespace, "\uFFFD"))
	}
	l.head = string(b)
	l.tail = string(appendPair(append(b[:0], ','), "version", version))
	return l
}

// pairs returns the labels for the library, sorted by name.
func (l *labels) pairs() []*dto.LabelPair {
	list := []*dto.LabelPair{label("model", l.model), label("version", l.version)}
	if l.namespace != "" {
		list = append(list, label("namespace", l.namespace))
	}
	if l.gpu != "" {
		list = append(list, label("gpu_uuid", l.gpu))
	}
	for key, value := range l.tags {
		list = append(list, label("_"+key, value))
	}
	slices.SortFunc(list, byName)
	return list
}

func labelsOf(s *engine.Statistics, gpu string) *labels {
	return newLabels(s.Name, s.Namespace, strconv.FormatInt(s.Version, 10), gpu, s.Config.GetMetricTags())
}

// value sends a number. extra are further labels, whose names come between model
// and version and whose values need no escape.
func (e *emitter) value(f *family, l *labels, v float64, extra ...string) {
	if e.ch != nil {
		pairs := l.pairs()
		for i := 0; i < len(extra); i += 2 {
			pairs = with(pairs, extra[i], extra[i+1])
		}
		e.ch <- &series{family: f, labels: pairs, value: v}
		return
	}
	b := e.page.of(f)
	*b = append(*b, f.name...)
	*b = append(*b, l.head...)
	for i := 0; i < len(extra); i += 2 {
		*b = append(*b, ',')
		*b = append(*b, extra[i]...)
		*b = append(*b, `="`...)
		*b = append(*b, extra[i+1]...)
		*b = append(*b, '"')
	}
	*b = append(*b, l.tail...)
	*b = append(*b, "} "...)
	*b = append(appendDecimal(*b, v), '\n')
}

// distribution sends a histogram with the bounds of its layout.
func (e *emitter) distribution(f *family, l *labels, s counted.Snapshot) {
	if e.ch != nil {
		e.ch <- &series{family: f, labels: l.pairs(), histogram: both(s)}
		return
	}
	b := e.page.of(f)
	line := func(suffix, le string, v float64) {
		*b = append(*b, f.name...)
		*b = append(*b, suffix...)
		*b = append(*b, l.head...)
		*b = append(*b, l.tail...)
		*b = append(*b, le...)
		*b = append(*b, "} "...)
		*b = append(appendDecimal(*b, v), '\n')
	}
	bounds := s.Layout.Bounds()
	for i, n := range s.Cumulative(bounds) {
		line("_bucket", e.page.bounds(s.Layout)[i], float64(n))
	}
	n := float64(s.Count())
	line("_bucket", `,le="+Inf"`, n)
	line("_sum", "", s.Sum)
	line("_count", "", n)
}

// series sends any other series.
func (e *emitter) series(s *series) {
	if e.ch != nil {
		e.ch <- s
		return
	}
	var m dto.Metric
	_ = s.Write(&m) // it does not fail
	b := e.page.of(s.family)
	*b = appendMetric(*b, s.family.name, s.family.kind, &m)
}

// A page is the text of a scrape, by family.
type page struct {
	text map[*family]*[]byte
	les  map[*counted.Layout][]string // the labels of the layouts' bounds
}

// maxKept is the most memory of a page that is kept for the next scrape. Growing
// the page anew each time would make as much garbage again.
const maxKept = 8 << 20

// A keptPage has the page of the last scrape.
type keptPage struct{ last atomic.Pointer[page] }

// take returns an empty page.
func (k *keptPage) take() *page {
	p := k.last.Swap(nil)
	if p == nil { // the first scrape, or one at the same time as another
		return &page{text: make(map[*family]*[]byte), les: make(map[*counted.Layout][]string)}
	}
	clear(p.les) // models that are gone had layouts of their own
	for _, b := range p.text {
		*b = (*b)[:0]
	}
	return p
}

// put takes a page back.
func (k *keptPage) put(p *page) {
	size := 0
	for _, b := range p.text {
		size += cap(*b)
	}
	if size <= maxKept {
		k.last.Store(p)
	}
}

// of returns the text of a family so far.
func (p *page) of(f *family) *[]byte {
	b := p.text[f]
	if b == nil {
		b = new([]byte)
		p.text[f] = b
	}
	return b
}

// bounds returns the labels of a layout's bounds.
func (p *page) bounds(l *counted.Layout) []string {
	list, ok := p.les[l]
	if !ok {
		for _, bound := range l.Bounds() {
			list = append(list, `,le="`+decimal(bound)+`"`)
		}
		p.les[l] = list
	}
	return list
}

// writeTo writes the page and the other families, by name.
func (p *page) writeTo(w io.Writer, others []*dto.MetricFamily) error {
	own := slices.SortedFunc(maps.Keys(p.text), func(a, b *family) int { return cmp.Compare(a.name, b.name) })
	var b []byte
	for len(own) > 0 || len(others) > 0 {
		if len(own) == 0 || len(others) > 0 && others[0].GetName() < own[0].name {
			b = appendText(b, others[:1])
			others = others[1:]
			continue
		}
		f := own[0]
		own = own[1:]
		if len(*p.text[f]) == 0 {
			continue
		}
		b = appendHead(b, f.name, f.help, f.kind)
		if _, err := w.Write(b); err != nil {
			return err
		}
		if _, err := w.Write(*p.text[f]); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := w.Write(b)
	return err
}

// appendPair appends name="value".
func appendPair(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, `="`...)
	if strings.ContainsAny(value, "\\\n\"") {
		value = labelEscaper.Replace(value)
	}
	b = append(b, value...)
	return append(b, '"')
}

// appendDecimal appends v as decimal prints it.
func appendDecimal(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return append(b, decimal(v)...)
}
