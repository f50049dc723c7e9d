package respcache

import (
	"crypto/rand"
	"encoding/binary"
	"hash"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/minio/highwayhash"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// A Key stands for a request to a loaded version. It is a strong hash: two requests
// with one key are the same.
type Key [highwayhash.Size]byte

// A hasher writes values so that no two lists of them look the same.
type hasher struct {
	hash.Hash
	head []byte // not hashed yet: few large writes are cheaper than many small ones
	key  Key    // here because what goes through an interface escapes
}

// hashers have HighwayHash with 256 bits under a secret of the process: without it
// nobody can look for two requests with one key. It is some ten times as fast as
// SHA-256, which took longer than all else of a large hit.
var hashers = sync.Pool{New: func() any {
	h, err := highwayhash.New(secret[:])
	if err != nil {
		panic("BUG: respcache: " + err.Error())
	}
	return &hasher{Hash: h}
}}

var secret = func() (key [highwayhash.Size]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}()

func (h *hasher) number(n uint64) { h.head = binary.LittleEndian.AppendUint64(h.head, n) }

func (h *hasher) string(s string) {
	h.number(uint64(len(s)))
	h.head = append(h.head, s...)
}

// data hashes a piece of a tensor.
func (h *hasher) data(b []byte) {
	if len(b) < 1024 {
		h.head = append(h.head, b...)
		return
	}
	h.flush()
	_, _ = h.Write(b) // never fails
}

func (h *hasher) flush() {
	_, _ = h.Write(h.head) // never fails
	h.head = h.head[:0]
}

// KeyOf returns the key of a request that was checked: its inputs are in the model's
// order. Load tells apart the times at which a model was loaded, so that no response
// outlives it. What a response depends on is in the key: names, types, shapes and
// content of the inputs, the outputs that are wanted, and parameters.
func KeyOf(load uint64, r *infer.Request) Key {
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.Reset()
	h.head = h.head[:0]
	h.number(load)
	h.number(uint64(len(r.Inputs)))
	for i := range r.Inputs {
		in := &r.Inputs[i]
		h.string(in.Name)
		h.number(uint64(in.Type))
		h.number(uint64(len(in.Shape)))
		for _, d := range in.Shape {
			h.number(uint64(d))
		}
		h.number(uint64(in.Data.Size()))
		h.data(in.Data.First)
		for _, piece := range in.Data.Rest {
			h.data(piece)
		}
	}
	names := make([]string, 0, 8)
	for i := range r.Outputs {
		names = append(names, r.Outputs[i].Name)
	}
	slices.Sort(names)
	h.number(uint64(len(names)))
	for _, name := range names {
		h.string(name)
	}
	h.params(r.Params)
	h.flush()
	h.Sum(h.key[:0])
	return h.key
}

func (h *hasher) params(given []infer.Param) {
	list := slices.Clone(given)
	slices.SortStableFunc(list, func(a, b infer.Param) int { return strings.Compare(a.Name, b.Name) })
	h.number(uint64(len(list)))
	for i := range list {
		p := &list[i]
		h.string(p.Name)
		h.number(uint64(p.Kind))
		h.string(p.String)
		h.number(uint64(p.Int))
		h.number(p.Uint)
		h.number(math.Float64bits(p.Float))
		truth := uint64(0)
		if p.Bool {
			truth = 1
		}
		h.number(truth)
	}
}

// overhead is roughly what an entry takes besides its tensors.
const overhead = 512

// sizeOf returns what a copy of a response takes.
func sizeOf(r *infer.Response) int64 {
	size := int64(overhead)
	for i := range r.Params {
		size += int64(len(r.Params[i].Name) + len(r.Params[i].String) + 64)
	}
	for i := range r.Outputs {
		out := &r.Outputs[i]
		size += int64(len(out.Data) + len(out.Name) + 8*len(out.Shape) + 64)
	}
	return size
}

// clone returns a copy of a response in memory of its own.
func clone(r *infer.Response) *infer.Response {
	c := &infer.Response{Ordered: r.Ordered, Params: slices.Clone(r.Params), Outputs: slices.Clone(r.Outputs)}
	for i := range c.Params {
		p := &c.Params[i]
		p.Name, p.String = strings.Clone(p.Name), strings.Clone(p.String)
	}
	for i := range c.Outputs {
		out := &c.Outputs[i]
		out.Name, out.Shape, out.Data = strings.Clone(out.Name), slices.Clone(out.Shape), slices.Clone(out.Data)
	}
	return c
}

// Fill makes to a response with the content of from, which stays as it is. The bytes
// of the outputs are shared, and must not be changed.
func Fill(to, from *infer.Response) {
	to.Ordered = from.Ordered
	to.Params = append(to.Params[:0], from.Params...)
	for i := range from.Outputs {
		out := to.AddOutput()
		shape := append(out.Shape, from.Outputs[i].Shape...)
		*out = from.Outputs[i]
		out.Shape = tensor.Shape(shape)
	}
}
