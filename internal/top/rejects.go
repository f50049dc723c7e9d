package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// A Rejects counts rejected requests or closed connections by reason.
type Rejects map[string]float64

// takeRejects adds a series of rejected requests to their model, or to the
// server when they name no existing model.
func (s *Sample) takeRejects(m *dto.Metric) {
	to := &s.Rejected
	if name := labelOf(m, "model"); name != "" {
		i := slices.IndexFunc(s.Models, func(o Model) bool { return o.Name == name && o.Version == labelOf(m, "version") })
		if i < 0 { // the requested version does not exist
			i = slices.IndexFunc(s.Models, func(o Model) bool { return o.Name == name })
		}
		if i >= 0 {
			to = &s.Models[i].Rejected
		}
	}
	to.add(m)
}

func (r *Rejects) add(m *dto.Metric) {
	n := finite(m.GetCounter().GetValue())
	if n == nil {
		return
	}
	if *r == nil {
		*r = make(Rejects)
	}
	(*r)[labelOf(m, "reason")] += *n
}

// sum returns their number, nil when it is unknown.
func (r Rejects) sum() *float64 {
	if r == nil {
		return nil
	}
	n := 0.0
	for _, v := range r {
		n += v
	}
	return &n
}

// since returns the rate per second since old, without reasons whose rate is
// zero. It is nil when r is.
func (r Rejects) since(old Rejects, seconds float64) Rejects {
	if r == nil {
		return nil
	}
	rates := make(Rejects)
	for reason, n := range r {
		if by := rise(new(old[reason]), n); by > 0 {
			rates[reason] = by / seconds
		}
	}
	return rates
}

// plus adds rates up.
func (r Rejects) plus(o Rejects) Rejects {
	if o == nil {
		return r
	}
	sum := maps.Clone(r)
	if sum == nil {
		sum = make(Rejects)
	}
	for reason, n := range o {
		sum[reason] += n
	}
	return sum
}

// text lists the rates, the largest first.
func (r Rejects) text() string {
	reasons := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		return cmp.Or(cmp.Compare(r[b], r[a]), strings.Compare(a, b))
	})
	parts := make([]string, len(reasons))
	for i, reason := range reasons {
		parts[i] = fmt.Sprintf("%s %s", printable(reason), rate(new(r[reason])))
	}
	return strings.Join(parts, "  ")
}

// extraLines are those below the models.
func (r *Report) extraLines() []string { return append(r.gpuLines(), r.rejectLines()...) }

// rejectLines list the rejections and their reasons; empty when there are none.
func (r *Report) rejectLines() []string {
	var lines []string
	if len(r.Total.RejectedByReason) > 0 {
		lines = append(lines, "REJECTED/S  "+r.Total.RejectedByReason.text())
	}
	var closed Rejects
	for i := range r.Servers {
		closed = closed.plus(r.Servers[i].Closed)
	}
	if len(closed) > 0 {
		lines = append(lines, "CLOSED/S    "+closed.text())
	}
	return lines
}
