package sched

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/infer"
)

// BenchmarkAuto is what the policy itself costs for each request: the decisions on
// a batch, and learning from it. The floor is 300 ns.
func BenchmarkAuto(b *testing.B) {
	for _, tt := range []struct {
		rows, callers, instances int
		turn                     time.Duration
	}{{1, 1, 1, ms / 5}, {4, 8, 2, ms / 5}, {16, 16, 1, ms / 5}, {32, 64, 2, ms / 5}, {8, 8, 2, 20 * ms}} {
		b.Run(fmt.Sprintf("rows=%d/callers=%d/instances=%d/turn=%v", tt.rows, tt.callers, tt.instances, tt.turn), func(b *testing.B) {
			a := NewAuto(64)
			batch := &infer.Batch{}
			for range tt.rows {
				batch.Requests = append(batch.Requests, &infer.Request{})
			}
			now := time.Now() // with the monotonic clock, as in a server
			for range b.N/tt.rows + 1 {
				begin := now.Add(tt.turn)
				for _, r := range batch.Requests {
					r.Queued = begin
				}
				v := View{Now: begin, Requests: tt.rows, Rows: tt.rows, Instances: tt.instances, Idle: 1, InFlight: tt.callers, Peak: tt.callers}
				if tt.instances > 1 {
					v.Running = []Running{{Rows: tt.rows, Start: now, End: begin.Add(ms)}}
				}
				if d := a.Decide(&v); !d.Start {
					held := Held{Rows: tt.rows, Requests: tt.rows, Open: true, LastRun: 3 * ms, Since: begin}
					v.Held, v.Requests, v.Rows, v.Idle = &held, 0, 0, 0
					a.Decide(&v)
				}
				now = begin.Add(ms + time.Duration(tt.rows)*ms/10)
				a.Observe(Run{Rows: tt.rows, Requests: tt.rows, Busy: tt.instances, Since: begin, Start: begin, End: now, InFlight: tt.callers, Batch: batch})
			}
		})
	}
}
