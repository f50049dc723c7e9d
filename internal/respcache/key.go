package respcache

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"
	"strings"
	"sync"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// A Key stands for a request to a loaded version. It is a strong hash: two requests
// with one key are the same.
type Key [sha256.Size]byte

// A hasher writes values so that no two lists of them look the same.
type hasher struct {
	hash.Hash
	buf [8]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}

func (h *hasher) number(n uint64) {
	binary.LittleEndian.PutUint64(h.buf[:], n)
	_, _ = h.Write(h.buf[:]) // never fails
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	_, _ = h.Write([]byte(s)) // never fails
}

// KeyOf returns the key of a request that was checked: its inputs are in the model's
// order. Load tells apart the times at which a model was loaded, so that no response
// outlives it. What a response depends on is in the key: names, types, shapes and
// content of the inputs, the outputs that are wanted, and parameters.
func KeyOf(load uint64, r *infer.Request) (k Key) {
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.Reset()
	h.number(load)
	h.number(uint64(len(r.Inputs)))
	for i := range r.Inputs {
		in := &r.Inputs[i]
		h.text(in.Name)
		h.number(uint64(in.Type))
		h.number(uint64(len(in.Shape)))
		for _, d := range in.Shape {
			h.number(uint64(d))
		}
		h.number(uint64(in.Data.Size()))
		_, _ = h.Write(in.Data.First) // never fails
		for _, piece := range in.Data.Rest {
			_, _ = h.Write(piece)
		}
	}
	names := make([]string, 0, 8)
	for i := range r.Outputs {
		names = append(names, r.Outputs[i].Name)
	}
	slices.Sort(names)
	h.number(uint64(len(names)))
	for _, name := range names {
		h.text(name)
	}
	h.params(r.Params)
	h.Sum(k[:0])
	return k
}

func (h *hasher) params(given []infer.Param) {
	list := slices.Clone(given)
	slices.SortStableFunc(list, func(a, b infer.Param) int { return strings.Compare(a.Name, b.Name) })
	h.number(uint64(len(list)))
	for i := range list {
		p := &list[i]
		h.text(p.Name)
		h.number(uint64(p.Kind))
		h.text(p.String)
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

// clone returns a copy of a response in memory of its own, and its size.
func clone(r *infer.Response) (*infer.Response, int64) {
	c := &infer.Response{Ordered: r.Ordered, Params: slices.Clone(r.Params), Outputs: slices.Clone(r.Outputs)}
	size := int64(overhead)
	for i := range c.Params {
		p := &c.Params[i]
		p.Name, p.String = strings.Clone(p.Name), strings.Clone(p.String)
		size += int64(len(p.Name) + len(p.String) + 64)
	}
	for i := range c.Outputs {
		out := &c.Outputs[i]
		out.Name, out.Shape, out.Data = strings.Clone(out.Name), slices.Clone(out.Shape), slices.Clone(out.Data)
		size += int64(len(out.Data) + len(out.Name) + 8*len(out.Shape) + 64)
	}
	return c, size
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
