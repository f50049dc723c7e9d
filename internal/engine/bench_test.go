package engine

import (
	"fmt"
	"sync"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

const batchedInput = `
backend: "identity"
max_batch_size: 32
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
dynamic_batching { }
`

// BenchmarkInfer is a request's whole way through the engine, with a model that
// takes no time: acquire, check, schedule, run, count.
func BenchmarkInfer(b *testing.B) {
	for _, model := range []string{"direct", "batched"} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d", model, callers), func(b *testing.B) {
				e := start(b, repo(b, map[string]string{
					"direct/config.pbtxt": oneInput, "direct/1/": "",
					"batched/config.pbtxt": batchedInput, "batched/1/": "",
				}))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for i := range callers {
					n := b.N / callers
					if i == 0 {
						n += b.N % callers
					}
					wg.Go(func() {
						for range n {
							acquireAndInfer(b, e, model)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// acquireAndInfer sends the model's version 1 a request that holds its own lease.
func acquireAndInfer(tb testing.TB, e *Engine, model string) {
	lease, err := e.Acquire(model, 1)
	if err != nil {
		tb.Error(err)
		return
	}
	r := infer.NewRequest()
	r.Hold(lease)
	sendZeros(tb, lease.Version, r)
}

// inferZeros sends v one row of two zeros.
func inferZeros(tb testing.TB, v *Version) { sendZeros(tb, v, infer.NewRequest()) }

func sendZeros(tb testing.TB, v *Version, r *infer.Request) {
	i := r.AddInput()
	*i = infer.Input{Name: "INPUT0", Type: tensor.FP32, Shape: append(r.Dims(2), 1, 2), Data: infer.Data{First: zeros[:]}}
	if err := v.Infer(tb.Context(), r); err != nil {
		tb.Error(err)
	}
	r.Release()
}

// BenchmarkEnsemble has a chain of steps that do nothing; the difference between
// two lengths is what a step costs.
func BenchmarkEnsemble(b *testing.B) {
	const same = `backend: "identity" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_UINT8 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ 1 ] }`
	for _, n := range []int{1, 3, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var steps []string
			for i := range n {
				from, to := fmt.Sprint("t", i), fmt.Sprint("t", i+1)
				if i == 0 {
					from = "a"
				}
				if i == n-1 {
					to = "z"
				}
				steps = append(steps, "same INPUT0="+from+" OUTPUT0="+to)
			}
			e, _ := startEnsemble(b, newAdder(), Options{}, map[string]string{"same": same, "chain": chained(8, steps...)})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sum(b.Context(), e, "chain", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
