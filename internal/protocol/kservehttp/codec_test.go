package kservehttp

import (
	"encoding/json"
	"testing"
	"time"

	"shoal/internal/infer"
	"shoal/internal/race"
)

// small is the body of a usual request: sixteen numbers.
var small = []byte(`{"id":"42","inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"FP32","data":` +
	`[0.123456,1.5,-2.25,3.14159,100.0,0.001,42,-7.5,8.125,9.875,10.0625,-11.5,12.75,0.333333,14.2,15.9]}],` +
	`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":false}}]}`)

// decodeBody decodes a body as the handler does.
func decodeBody(r *infer.Request, json, binary []byte) (allBinary bool, err error) {
	d := newDecoder(r, "m", 64<<20, nil)
	defer d.release()
	err = d.decode(json, binary)
	return d.allBinary, err
}

// respond gives r a response that is its first input.
func respond(r *infer.Request) {
	r.Response.Model, r.Response.Version = "m", 1
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Data = "OUTPUT0", r.Inputs[0].Type, r.Inputs[0].Data.First
	out.Shape = append(out.Shape, r.Inputs[0].Shape...)
}

func TestDecodeAndEncodeAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("pools give nothing back under the race detector")
	}
	var out []byte
	run := func() {
		r := infer.NewRequest()
		if _, err := decodeBody(r, small, nil); err != nil {
			t.Fatal(err)
		}
		respond(r)
		var err error
		if out, _, err = appendResponse(out[:0], r, false); err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	run()
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("got %v allocations per request, want 0", n)
	}
}

// inferJSON is a request as encoding/json reads it: its best case, since the
// real type of data depends on datatype.
type inferJSON struct {
	ID     string `json:"id"`
	Inputs []struct {
		Name     string    `json:"name"`
		Shape    []int64   `json:"shape"`
		Datatype string    `json:"datatype"`
		Data     []float32 `json:"data"`
	} `json:"inputs"`
	Outputs []struct {
		Name       string         `json:"name"`
		Parameters map[string]any `json:"parameters"`
	} `json:"outputs"`
}

func BenchmarkDecodeSmall(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := infer.NewRequest()
		if _, err := decodeBody(r, small, nil); err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
}

func BenchmarkDecodeSmallStandard(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var v inferJSON
		if err := json.Unmarshal(small, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeSmall(b *testing.B) {
	r := infer.NewRequest()
	if _, err := decodeBody(r, small, nil); err != nil {
		b.Fatal(err)
	}
	respond(r)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out, _, _ = appendResponse(out[:0], r, false)
	}
}

// BenchmarkDecodeBesideStandard holds the decoder to its budget: it is at least
// five times as fast as encoding/json. Both are timed in turns and the best of
// each counts, so that other work on the machine does not.
func BenchmarkDecodeBesideStandard(b *testing.B) {
	const calls, budget = 400, 5
	best := func(least *time.Duration, f func()) {
		begin := time.Now()
		for range calls {
			f()
		}
		if d := time.Since(begin); *least == 0 || d < *least {
			*least = d
		}
	}
	var ours, standard time.Duration
	for b.Loop() {
		best(&ours, func() {
			r := infer.NewRequest()
			decodeBody(r, small, nil)
			r.Release()
		})
		best(&standard, func() {
			var v inferJSON
			json.Unmarshal(small, &v)
		})
	}
	ratio := float64(standard) / float64(ours)
	b.ReportMetric(ratio, "x-faster")
	if b.N >= 20 && ratio < budget {
		b.Errorf("got %.1f times as fast as encoding/json, want at least %d", ratio, budget)
	}
}
