package input

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

// maxElements bounds one generated tensor; a mistake in --shape should not use
// up the machine's memory.
const maxElements = 1 << 30

// generatedRows is how many rows a generated stream has, so that the rows of a
// batch differ.
const generatedRows = 16

// A source fills elements.
type source struct {
	rng    *rand.Rand // nil: zeros
	raw    bool
	length int
	text   *string
}

func newRandom(o Options) *source {
	return &source{rng: rand.New(rand.NewPCG(o.Seed, 1)), raw: o.RawRandom, length: o.StringLength, text: o.StringData}
}

// newZero makes a source of zeros. Strings are still random unless they are
// given: empty strings would measure something else.
func newZero(o Options) *source {
	return &source{length: o.StringLength, text: o.StringData}
}

// generate makes one stream. Optional inputs are left out.
func (s *Set) generate(ports []*Port, from *source) error {
	rows := generatedRows
	if from.rng == nil {
		rows = 1
	}
	var stream []Step
	for range rows {
		step := Step{}
		for _, p := range ports {
			if p.Optional {
				continue
			}
			v, err := from.value(p)
			if err != nil {
				return err
			}
			step = append(step, v)
		}
		stream = append(stream, step)
	}
	s.Streams = [][]Step{stream}
	return nil
}

func (from *source) value(p *Port) (Value, error) {
	n, err := elements(p, p.Shape)
	if err != nil {
		return Value{}, err
	}
	if p.Type == tensor.Bytes {
		var data []byte
		for range n {
			data = client.AppendString(data, from.string())
		}
		return Value{p, p.Shape, data}, nil
	}
	data := make([]byte, n*int64(p.Type.Size()))
	from.fill(p.Type, data)
	return Value{p, p.Shape, data}, nil
}

// elements returns how many elements a value of this shape has.
func elements(p *Port, shape tensor.Shape) (int64, error) {
	if !shape.Fixed() {
		return 0, fmt.Errorf("input %q has the variable shape %s; give it one with --shape %s:%s", p.Name, shape, p.Name, example(shape))
	}
	n, ok := shape.Elements()
	if !ok || n > maxElements {
		return 0, fmt.Errorf("input %q of shape %s has too many elements", p.Name, shape)
	}
	return n, nil
}

// example formats a shape with ones where it varies.
func example(s tensor.Shape) string {
	fixed := make(tensor.Shape, len(s))
	for i, d := range s {
		fixed[i] = max(d, 1)
	}
	return commas(fixed)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .?!"

func (from *source) string() string {
	if from.text != nil {
		return *from.text
	}
	rng := from.rng
	if rng == nil {
		rng = rand.New(rand.NewPCG(1, 2))
	}
	b := make([]byte, from.length)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return string(b)
}

// fill writes values that a model can be expected to accept: floats from 0 to
// 1, booleans, and integers below 10, which are likely to be valid indices.
func (from *source) fill(t tensor.Type, data []byte) {
	if from.rng == nil {
		return
	}
	le := binary.LittleEndian
	size := t.Size()
	for i := 0; i+size <= len(data); i += size {
		v := data[i : i+size]
		if from.raw {
			for j := range v {
				v[j] = byte(from.rng.Uint32())
			}
			continue
		}
		switch t {
		case tensor.Bool:
			v[0] = byte(from.rng.IntN(2))
		case tensor.FP16:
			// A half between 0.5 and 1 has a fixed exponent and ten free bits.
			le.PutUint16(v, 0x3800|uint16(from.rng.IntN(1<<10)))
		case tensor.BF16:
			le.PutUint16(v, uint16(math.Float32bits(from.rng.Float32())>>16))
		case tensor.FP32:
			le.PutUint32(v, math.Float32bits(from.rng.Float32()))
		case tensor.FP64:
			le.PutUint64(v, math.Float64bits(from.rng.Float64()))
		default:
			v[0] = byte(from.rng.IntN(10)) // little-endian: the rest stays zero
		}
	}
}
