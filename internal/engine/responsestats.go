package engine

import (
	"slices"
	"sync"
	"time"

	"shoal/internal/infer"
)

// maxResponseIndex bounds the positions that are counted separately, so that a
// model which answers without end does not fill the memory with counters.
const maxResponseIndex = 1 << 14

// responseTable has the counters of a decoupled model's responses by their
// position in the request's responses. The zero value is ready for use.
type responseTable struct {
	mu   sync.Mutex // protects the field below
	rows []ResponseStatistics
}

// add counts one response.
func (t *responseTable) add(d infer.Delivery) {
	i := min(d.Index, maxResponseIndex-1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if i >= len(t.rows) {
		t.rows = append(t.rows, make([]ResponseStatistics, i+1-len(t.rows))...)
	}
	row := &t.rows[i]
	all := d.End.Sub(d.Start)
	switch d.Outcome {
	case infer.ResponseEmpty:
		row.ComputeInfer.add(all)
		row.EmptyResponse.add(all)
		return
	case infer.ResponseCancel:
		row.Cancel.add(all)
		return
	case infer.ResponseFail:
		row.Fail.add(all)
	default:
		row.Success.add(all)
	}
	row.ComputeInfer.add(d.Output.Sub(d.Start))
	row.ComputeOutput.add(d.End.Sub(d.Output))
}

// list returns the counters as they are now.
func (t *responseTable) list() []ResponseStatistics {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.rows)
}

func (d *Duration) add(took time.Duration) {
	d.Count++
	d.Ns += nanos(took)
}
