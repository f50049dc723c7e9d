package metrics

import (
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// appendText appends the families in the text format. Values are plain
// decimals: the library's own writer prints 1e+06 for a million, which people's
// patterns for Triton's metrics do not expect.
func appendText(b []byte, families []*dto.MetricFamily) []byte {
	for _, f := range families {
		name := f.GetName()
		b = appendHead(b, name, f.GetHelp(), f.GetType())
		for _, m := range f.GetMetric() {
			b = appendMetric(b, name, f.GetType(), m)
		}
	}
	return b
}

func appendHead(b []byte, name, help string, kind dto.MetricType) []byte {
	b = append(b, "# HELP "+name+" "+helpEscaper.Replace(help)+"\n"...)
	return append(b, "# TYPE "+name+" "+strings.ToLower(kind.String())+"\n"...)
}

func appendMetric(b []byte, name string, kind dto.MetricType, m *dto.Metric) []byte {
	switch kind {
	case dto.MetricType_COUNTER:
		return appendSample(b, name, m, "", "", m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		return appendSample(b, name, m, "", "", m.GetGauge().GetValue())
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		for _, q := range s.GetQuantile() {
			b = appendSample(b, name, m, "quantile", decimal(q.GetQuantile()), q.GetValue())
		}
		b = appendSample(b, name+"_sum", m, "", "", s.GetSampleSum())
		return appendSample(b, name+"_count", m, "", "", float64(s.GetSampleCount()))
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		for _, bucket := range h.GetBucket() {
			b = appendSample(b, name+"_bucket", m, "le", decimal(bucket.GetUpperBound()), float64(bucket.GetCumulativeCount()))
		}
		b = appendSample(b, name+"_bucket", m, "le", "+Inf", float64(h.GetSampleCount()))
		b = appendSample(b, name+"_sum", m, "", "", h.GetSampleSum())
		return appendSample(b, name+"_count", m, "", "", float64(h.GetSampleCount()))
	}
	return appendSample(b, name, m, "", "", m.GetUntyped().GetValue())
}

// appendSample appends one line; key, when set, is an additional label.
func appendSample(b []byte, name string, m *dto.Metric, key, value string, v float64) []byte {
	b = append(b, name...)
	sep := byte('{')
	for _, l := range m.GetLabel() {
		b = appendPair(append(b, sep), l.GetName(), l.GetValue())
		sep = ','
	}
	if key != "" {
		b = appendPair(append(b, sep), key, value)
		sep = ','
	}
	if sep == ',' {
		b = append(b, '}')
	}
	b = append(b, ' ')
	b = append(b, decimal(v)...)
	return append(b, '\n')
}

func decimal(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)
