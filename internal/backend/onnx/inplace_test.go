package onnx

import (
	"bytes"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

// aligned returns n bytes of that value, shift bytes behind an aligned address.
func aligned(n, shift int, value byte) []byte {
	b := make([]byte, n+2*alignment)
	at := int(-address(b)%alignment) + shift
	return append(b[at:at], bytes.Repeat([]byte{value}, n)...)
}

func TestOneRequestsLargeInputIsNotCopied(t *testing.T) {
	const elements = minInPlace / 4
	model := onnxtest.Identity(tensor.FP32, elements)
	type call struct {
		data    infer.Data
		inPlace bool
	}
	private := func(b []byte) infer.Data { return infer.Data{First: b, Private: true} }
	split := aligned(4*elements, 0, 7)
	for name, calls := range map[string][]call{
		"the server's own memory":   {{private(aligned(4*elements, 0, 1)), true}},
		"memory of another process": {{infer.Data{First: aligned(4*elements, 0, 2)}, false}},
		"not aligned":               {{private(aligned(4*elements, 4, 3)), false}},
		"in pieces":                 {{infer.Data{First: split[:8], Rest: [][]byte{split[8:]}, Private: true}, false}},
		"two requests":              {{private(aligned(4*elements, 0, 5)), false}, {private(aligned(4*elements, 0, 6)), false}},
	} {
		t.Run(name, func(t *testing.T) {
			in := start(t, model, `max_batch_size: 2`)
			var requests []*infer.Request
			for _, c := range calls {
				r := request(1, arg{0, tensor.FP32, tensor.Shape{1, elements}, nil})
				r.Inputs[0].Data = c.data
				requests = append(requests, r)
				defer r.Release()
			}
			if _, err := run(in, requests...); err != nil {
				t.Fatal(err)
			}
			place := in.plans[0].inputs[0]
			for i, c := range calls {
				want := c.data.Contiguous(nil)
				if got := result(t, requests[i], "OUT").Data; !bytes.Equal(got, want) {
					t.Errorf("request %d: got an answer that begins with %x, want %x", i, got[:4], want[:4])
				}
				copied := in.region.mem[place.offset+i*len(want)] == want[0] // fresh memory is zero
				if copied == c.inPlace {
					t.Errorf("request %d: got copied %v, want %v", i, copied, !c.inPlace)
				}
			}
			if len(in.inPlace) != 0 {
				t.Errorf("got %d tensors that were not released, want none", len(in.inPlace))
			}
		})
	}
}

func TestARunInPlaceAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const elements = minInPlace / 4
	in := start(t, onnxtest.Identity(tensor.FP32, elements), ``)
	r := request(1, arg{0, tensor.FP32, tensor.Shape{1, elements}, [][]byte{aligned(4*elements, 0, 1)}})
	defer r.Release()
	r.Inputs[0].Data.Private = true
	b := &infer.Batch{Requests: []*infer.Request{r}, Rows: 1}
	once(t, in, b) // makes what is kept
	if got := testing.AllocsPerRun(200, func() { once(t, in, b) }); got != 0 {
		t.Errorf("got %v allocations per run, want 0", got)
	}
}

func BenchmarkInPlace(b *testing.B) {
	for _, size := range []int{16 << 10, 32 << 10, 64 << 10, 602112} {
		for _, private := range []bool{false, true} {
			name := map[bool]string{false: "copied", true: "in place"}[private]
			b.Run(name+"/"+tensor.Shape{int64(size)}.String(), func(b *testing.B) {
				in := start(b, onnxtest.Identity(tensor.FP32, size/4), ``)
				r := request(1, arg{0, tensor.FP32, tensor.Shape{1, int64(size / 4)}, [][]byte{aligned(size, 0, 1)}})
				defer r.Release()
				r.Inputs[0].Data.Private = private
				batch := &infer.Batch{Requests: []*infer.Request{r}, Rows: 1}
				for b.Loop() {
					once(b, in, batch)
				}
			})
		}
	}
}
