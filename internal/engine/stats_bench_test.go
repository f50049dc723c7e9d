package engine

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/infer"
)

// BenchmarkStats is what counting costs a request, in batches of one and of
// sixteen.
func BenchmarkStats(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			var s stats
			s.init(plainLayouts, false, false)
			begin := time.Now()
			batch := &infer.Batch{Rows: n, Times: infer.Times{
				Start: begin.Add(100 * time.Microsecond), InputsReady: begin.Add(110 * time.Microsecond),
				OutputsOut: begin.Add(300 * time.Microsecond), End: begin.Add(310 * time.Microsecond),
			}}
			for range n {
				batch.Requests = append(batch.Requests, &infer.Request{Rows: 1, Queued: begin, Started: true})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.accepted()
				if i%n == n-1 {
					s.Started(batch)
					s.Executed(batch, nil)
				}
				s.concluded(batch.Requests[i%n], begin, nil)
			}
		})
	}
}
