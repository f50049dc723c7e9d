package infer

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// pieces cuts content at random places.
func pieces(rng *rand.Rand, content []byte) Data {
	var d Data
	d.First, content = cut(rng, content)
	for len(content) > 0 {
		var p []byte
		p, content = cut(rng, content)
		d.Rest = append(d.Rest, p)
	}
	return d
}

func cut(rng *rand.Rand, content []byte) (piece, rest []byte) {
	n := rng.IntN(len(content) + 1)
	return content[:n], content[n:]
}

func TestCopiesLayTensorsEndToEndWhateverTheirSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c Copies
	for _, sizes := range [][]int{{64}, {0, 5}, {4 * partSize}, {partSize, 3*partSize - 1, 1}, {3, 9*partSize + 7, 0, partSize}, {64, 64}} {
		total := 0
		for _, n := range sizes {
			total += n
		}
		want, got := make([]byte, total), make([]byte, total+1)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		c.Begin(total)
		at := 0
		for _, n := range sizes {
			at += c.Add(got[at:], pieces(rng, want[at:at+n]))
		}
		c.End()
		if at != total || !bytes.Equal(got[:total], want) || got[total] != 0 {
			t.Errorf("tensors of %v bytes: got %d bytes that are not theirs, want %d", sizes, at, total)
		}
		if len(c.parts) != 0 {
			t.Errorf("tensors of %v bytes: got %d parts kept, want none", sizes, len(c.parts))
		}
	}
}

func TestCopiesOfSmallBatchesAllocateNothing(t *testing.T) {
	var c Copies
	dst, src := make([]byte, 1<<16), Data{First: make([]byte, 1<<16)}
	if n := testing.AllocsPerRun(100, func() {
		c.Begin(len(dst))
		c.Add(dst, src)
		c.End()
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// BenchmarkCopies shows what sharing brings: 64 images of 602 KB.
func BenchmarkCopies(b *testing.B) {
	const images, size = 64, 602112
	dst, src := make([]byte, images*size), make([]Data, images)
	for i := range src {
		src[i].First = bytes.Repeat([]byte{byte(i)}, size)
	}
	for _, shared := range []bool{false, true} {
		name := "alone"
		if shared {
			name = "shared"
		}
		b.Run(name, func(b *testing.B) {
			var c Copies
			b.SetBytes(images * size)
			for b.Loop() {
				c.Begin(len(dst))
				c.later = shared
				at := 0
				for _, d := range src {
					at += c.Add(dst[at:], d)
				}
				c.End()
			}
		})
	}
}
