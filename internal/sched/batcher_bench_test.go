package sched

import (
	"fmt"
	"sync"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// BenchmarkBatcher is a request's way through the batcher with a model that
// takes no time, for callers that each wait for their answer.
func BenchmarkBatcher(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			cfg := BatcherConfig{Policy: NewAuto(32), Levels: []QueuePolicy{{}}, Signature: fixedSignature(32)}
			bt, err := StartBatcher(cfg, []backend.Instance{&instant{}}, &counting{})
			if err != nil {
				b.Fatal(err)
			}
			defer bt.Close()
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range callers {
				n := b.N / callers
				if c < b.N%callers {
					n++
				}
				wg.Go(func() {
					ctx := infer.NewCaller(b.Context())
					defer ctx.Leave()
					r := request("")
					for range n {
						_ = bt.Do(ctx, r)
					}
				})
			}
			wg.Wait()
		})
	}
}

type counting struct{}

func (*counting) Started(*infer.Batch)         {}
func (*counting) Executed(*infer.Batch, error) {}
