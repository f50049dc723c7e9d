package respcache

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

func request(change func(*infer.Request)) *infer.Request {
	r := infer.NewRequest()
	r.Inputs = append(r.Inputs,
		infer.Input{Name: "A", Type: tensor.FP32, Shape: tensor.Shape{1, 2}, Data: infer.Data{First: []byte("12345678")}},
		infer.Input{Name: "B", Type: tensor.FP32, Shape: tensor.Shape{1, 1}, Data: infer.Data{First: []byte("abcd")}})
	if change != nil {
		change(r)
	}
	return r
}

func response(data string) *infer.Response {
	return &infer.Response{Outputs: []infer.Output{{Name: "OUT", Type: tensor.Uint8, Shape: tensor.Shape{int64(len(data))}, Data: []byte(data)}}}
}

func TestKeysDifferInAllThatAResponseDependsOn(t *testing.T) {
	requests := map[string]*infer.Request{
		"the first":                request(nil),
		"other content":            request(func(r *infer.Request) { r.Inputs[0].Data.First = []byte("12345679") }),
		"another shape":            request(func(r *infer.Request) { r.Inputs[0].Shape = tensor.Shape{2, 1} }),
		"another type":             request(func(r *infer.Request) { r.Inputs[0].Type = tensor.Int32 }),
		"another name":             request(func(r *infer.Request) { r.Inputs[0].Name = "C" }),
		"content in another input": request(func(r *infer.Request) { r.Inputs[0].Data.First, r.Inputs[1].Data.First = []byte("12345678abcd"), nil }),
		"an output":                request(func(r *infer.Request) { r.Outputs = append(r.Outputs, infer.Wanted{Name: "OUT"}) }),
		"a parameter": request(func(r *infer.Request) {
			r.Params = append(r.Params, infer.Param{Name: "p", Kind: infer.ParamBool, Bool: true})
		}),
		"another parameter": request(func(r *infer.Request) { r.Params = append(r.Params, infer.Param{Name: "p", Kind: infer.ParamBool}) }),
	}
	seen := map[Key]string{KeyOf(2, requests["the first"]): "another load"}
	for name, r := range requests {
		k := KeyOf(1, r)
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[k] = name
	}
	pieces := request(func(r *infer.Request) {
		r.Inputs[0].Data = infer.Data{First: []byte("123"), Rest: [][]byte{[]byte("45"), []byte("678")}}
		r.ID, r.Priority = "another", 3
	})
	if KeyOf(1, pieces) != KeyOf(1, requests["the first"]) {
		t.Error("got two keys for one content in pieces, want the same")
	}
}

func TestACacheStaysWithinItsBytes(t *testing.T) {
	c := New(3 * (overhead + 1000))
	put := func(n byte) {
		if resp, wait := c.Begin(Key{n}); resp != nil || wait != nil {
			t.Fatalf("%d is there already", n)
		}
		c.End(Key{n}, response(string(make([]byte, 800))))
	}
	there := func(n byte) bool {
		resp, _ := c.Begin(Key{n})
		if resp == nil {
			c.End(Key{n}, nil)
		}
		return resp != nil
	}
	put(1)
	put(2)
	put(3)
	if !there(1) { // used again, so that 2 is the oldest
		t.Error("1 is gone already")
	}
	put(4)
	if there(2) || !there(1) || !there(3) || !there(4) {
		t.Errorf("got 1: %v, 2: %v, 3: %v, 4: %v, want 2 gone", there(1), there(2), there(3), there(4))
	}
	if resp, _ := c.Begin(Key{9}); resp != nil {
		t.Fatal("9 is there")
	}
	c.End(Key{9}, response(string(make([]byte, 1<<20)))) // larger than all of the cache
	if s := c.Stats(); s.Responses != 3 || s.Bytes > c.limit || s.Hits != 4 || s.Misses != 6 || s.Evictions != 1 {
		t.Errorf("got %+v, want 3 responses, 4 hits, 6 misses and 1 eviction", s)
	}
}

func TestAResponseIsItsOwnCopy(t *testing.T) {
	c := New(1 << 20)
	c.Begin(Key{1})
	made := response("abc")
	c.End(Key{1}, made)
	copy(made.Outputs[0].Data, "xyz")
	made.Outputs[0].Shape[0] = 99
	for range 2 {
		found, _ := c.Begin(Key{1})
		var r infer.Response
		Fill(&r, found)
		if out := r.Outputs[0]; string(out.Data) != "abc" || out.Shape[0] != 3 || out.Name != "OUT" {
			t.Errorf("got %+v, want what was kept", out)
		}
		r.Outputs[0].Shape[0] = 7 // as classification does
		r.Release()
	}
}

func TestOneOfManyComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(1 << 20)
		var mu sync.Mutex // protects computed
		computed := 0
		release := make(chan struct{})
		ask := func(fail bool) bool {
			for {
				resp, wait := c.Begin(Key{1})
				switch {
				case resp != nil:
					return true
				case wait == nil:
					<-release
					mu.Lock()
					computed++
					mu.Unlock()
					if fail {
						c.End(Key{1}, nil)
						return false
					}
					c.End(Key{1}, response("x"))
					return true
				}
				<-wait
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { ask(true) })
		synctest.Wait()
		for range 50 {
			wg.Go(func() { ask(false) })
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if computed != 2 {
			t.Errorf("got it computed %d times, want once that failed and once more", computed)
		}
	})
}

func TestWhatDoesNotFitIsNotCopied(t *testing.T) {
	c := New(overhead)
	large := response(string(make([]byte, 1<<20)))
	if got := testing.AllocsPerRun(10, func() {
		c.Begin(Key{1})
		c.End(Key{1}, large)
	}); got > 3 { // the flight and its channel
		t.Errorf("got %v allocations, want no copy of the response", got)
	}
}

func TestKeysDoNotAllocate(t *testing.T) {
	r := request(func(r *infer.Request) { r.Outputs = append(r.Outputs, infer.Wanted{Name: "OUT"}) })
	KeyOf(1, r)
	if got := testing.AllocsPerRun(100, func() { KeyOf(1, r) }); got > 0 && !race.Enabled {
		t.Errorf("got %v allocations, want none", got)
	}
}

func BenchmarkKeyOf(b *testing.B) {
	for _, size := range []int{64, 602112} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			r := request(func(r *infer.Request) { r.Inputs[0].Data.First = make([]byte, size) })
			b.SetBytes(int64(size))
			for b.Loop() {
				KeyOf(1, r)
			}
		})
	}
}
