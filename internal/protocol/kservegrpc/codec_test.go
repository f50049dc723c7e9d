package kservegrpc

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"shoal/internal/infer"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// countingPool counts the buffers that are out.
type countingPool struct{ out int }

func (p *countingPool) Get(n int) *[]byte { p.out++; b := make([]byte, n, max(n, 2048)); return &b }
func (p *countingPool) Put(b *[]byte)     { p.out--; clear((*b)[:cap(*b)]) }

// split returns data in pieces of sizes that seed decides, from the pool.
func split(data []byte, seed uint64, pool *countingPool) mem.BufferSlice {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var s mem.BufferSlice
	for len(data) > 0 {
		n := 1 + rnd.IntN(len(data))
		switch rnd.IntN(4) {
		case 0:
			n = 1
		case 1:
			n = min(n, 7)
		}
		if seed == 0 {
			n = len(data)
		}
		b := pool.Get(n)
		copy(*b, data)
		s = append(s, mem.NewBuffer(b, pool))
		data = data[n:]
	}
	return s
}

// standard returns a decoded message in the standard form.
func standard(t *testing.T, m *message) *pb.ModelInferRequest {
	t.Helper()
	out := &pb.ModelInferRequest{
		ModelName: strings.Clone(m.model), ModelVersion: strings.Clone(m.version), Id: strings.Clone(m.id),
		Parameters: standardParams(m.params),
	}
	for i := range m.inputs {
		in := &m.inputs[i]
		tensor := &pb.ModelInferRequest_InferInputTensor{
			Name: strings.Clone(in.name), Datatype: strings.Clone(in.datatype),
			Shape: append([]int64(nil), in.shape...), Parameters: standardParams(in.params),
		}
		if in.has {
			tensor.Contents = &pb.InferTensorContents{}
			for _, part := range in.contents {
				if err := (proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}).Unmarshal(part, tensor.Contents); err != nil {
					t.Fatalf("contents %x: got %v, want what decode accepted", part, err)
				}
			}
		}
		out.Inputs = append(out.Inputs, tensor)
	}
	for i := range m.outputs {
		out.Outputs = append(out.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{
			Name: strings.Clone(m.outputs[i].name), Parameters: standardParams(m.outputs[i].params),
		})
	}
	for _, d := range m.raw {
		out.RawInputContents = append(out.RawInputContents, bytes.Clone(d.Contiguous(nil)))
	}
	return out
}

func standardParams(ps []param) map[string]*pb.InferParameter {
	var out map[string]*pb.InferParameter
	for _, p := range ps {
		if out == nil {
			out = make(map[string]*pb.InferParameter)
		}
		v := &pb.InferParameter{}
		switch {
		case !p.set:
		case p.Kind == infer.ParamBool:
			v.ParameterChoice = &pb.InferParameter_BoolParam{BoolParam: p.Bool}
		case p.Kind == infer.ParamInt:
			v.ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: p.Int}
		case p.Kind == infer.ParamString:
			v.ParameterChoice = &pb.InferParameter_StringParam{StringParam: strings.Clone(p.String)}
		case p.Kind == infer.ParamFloat:
			v.ParameterChoice = &pb.InferParameter_DoubleParam{DoubleParam: p.Float}
		case p.Kind == infer.ParamUint:
			v.ParameterChoice = &pb.InferParameter_Uint64Param{Uint64Param: p.Uint}
		}
		if _, ok := out[p.Name]; ok {
			panic("parameter " + p.Name + " is there twice")
		}
		out[strings.Clone(p.Name)] = v
	}
	return out
}

// standardTyped is what a tensor's typed contents mean, spelled out.
func standardTyped(c *pb.InferTensorContents, t tensor.Type) ([]byte, bool) {
	var b []byte
	le := binary.LittleEndian
	fields := 0
	count := func(n int, types ...tensor.Type) bool {
		if n == 0 {
			return true
		}
		fields++
		for _, want := range types {
			if t == want {
				return true
			}
		}
		return false
	}
	ok := count(len(c.BoolContents), tensor.Bool) &&
		count(len(c.IntContents), tensor.Int8, tensor.Int16, tensor.Int32) &&
		count(len(c.Int64Contents), tensor.Int64) &&
		count(len(c.UintContents), tensor.Uint8, tensor.Uint16, tensor.Uint32) &&
		count(len(c.Uint64Contents), tensor.Uint64) &&
		count(len(c.Fp32Contents), tensor.FP32) &&
		count(len(c.Fp64Contents), tensor.FP64) &&
		count(len(c.BytesContents), tensor.Bytes)
	if !ok || fields > 1 {
		return nil, false
	}
	for _, v := range c.BoolContents {
		b = append(b, byte(protowire.EncodeBool(v)))
	}
	for _, v := range c.IntContents {
		b = append(b, le.AppendUint32(nil, uint32(v))[:t.Size()]...)
	}
	for _, v := range c.UintContents {
		b = append(b, le.AppendUint32(nil, v)[:t.Size()]...)
	}
	for _, v := range c.Int64Contents {
		b = le.AppendUint64(b, uint64(v))
	}
	for _, v := range c.Uint64Contents {
		b = le.AppendUint64(b, v)
	}
	for _, v := range c.Fp32Contents {
		b = le.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range c.Fp64Contents {
		b = le.AppendUint64(b, math.Float64bits(v))
	}
	for _, v := range c.BytesContents {
		b = append(le.AppendUint32(b, uint32(len(v))), v...)
	}
	return b, true
}

// checkCodec holds our decoding of data, cut into pieces, against the standard
// codec's.
func checkCodec(t *testing.T, data []byte, seed uint64) {
	t.Helper()
	want := &pb.ModelInferRequest{}
	wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, want)

	pool := &countingPool{}
	pieces := split(data, seed, pool)
	m := newMessage()
	err := newCodec(nil).Unmarshal(pieces, m)
	pieces.Free() // as grpc does once Unmarshal is back
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("decode %x: got error %v, want %v", data, err, wantErr)
	}
	if err == nil {
		got := standard(t, m)
		if !proto.Equal(got, want) {
			t.Fatalf("decode %x:\ngot  %v\nwant %v", data, got, want)
		}
		checkTyped(t, m, want)
	}
	m.release()
	if pool.out != 0 {
		t.Fatalf("decode %x: %d buffers are still out after release, want none", data, pool.out)
	}
}

func checkTyped(t *testing.T, m *message, want *pb.ModelInferRequest) {
	t.Helper()
	for i := range m.inputs {
		for typ := tensor.Invalid; typ <= tensor.BF16; typ++ {
			data, err := m.inputs[i].typed(m.req, typ)
			contents := want.Inputs[i].Contents
			if contents == nil {
				contents = &pb.InferTensorContents{}
			}
			wantData, ok := standardTyped(contents, typ)
			if (err == nil) != ok || !bytes.Equal(data.First, wantData) {
				t.Fatalf("contents %v as %v: got %x, %v, want %x, %v", want.Inputs[i].Contents, typ, data.First, err, wantData, ok)
			}
		}
	}
}

func FuzzCodec(f *testing.F) {
	for _, data := range codecSeeds(f) {
		for seed := range uint64(4) {
			f.Add(data, seed)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) { checkCodec(t, data, seed) })
}

func TestCodecReadsWhatTheStandardCodecReads(t *testing.T) {
	for _, data := range codecSeeds(t) {
		for seed := range uint64(50) {
			checkCodec(t, data, seed)
		}
		for n := range data { // and every beginning of it
			checkCodec(t, data[:n], uint64(n))
		}
	}
}

func TestCodecKeepsLargeTensorsWhereTheyWereReceived(t *testing.T) {
	raw := bytes.Repeat([]byte("shoal..."), 1<<16)
	data, err := proto.Marshal(&pb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{raw, []byte("tail")}})
	if err != nil {
		t.Fatal(err)
	}
	var pieces mem.BufferSlice
	for rest := data; len(rest) > 0; rest = rest[min(16384, len(rest)):] {
		pieces = append(pieces, mem.SliceBuffer(rest[:min(16384, len(rest))]))
	}
	m := newMessage()
	defer m.release()
	if err := m.decode(pieces, nil); err != nil {
		t.Fatal(err)
	}
	if got := m.raw[0].Contiguous(nil); !bytes.Equal(got, raw) {
		t.Fatalf("got %d bytes of tensor, want the %d sent", len(got), len(raw))
	}
	within := func(p []byte) bool {
		for i := range data {
			if &data[i] == &p[0] {
				return true
			}
		}
		return false
	}
	for i, p := range append([][]byte{m.raw[0].First}, m.raw[0].Rest...) {
		if !within(p) {
			t.Errorf("piece %d of %d was copied, want it left where it was received", i, 1+len(m.raw[0].Rest))
		}
	}
}

func TestCodecBoundsWhatAMessageTakesInMemory(t *testing.T) {
	repeat := func(num protowire.Number, inner []byte, n int) []byte {
		one := protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), inner)
		return bytes.Repeat(one, n)
	}
	for name, data := range map[string][]byte{
		"inputs":            repeat(5, nil, maxEntries+1),
		"outputs":           repeat(6, nil, maxEntries+1),
		"parameters":        repeat(4, nil, maxEntries+2),
		"raw contents":      repeat(7, nil, maxEntries+1),
		"tensor parameters": repeat(5, repeat(4, nil, maxEntries+2), 1),
		"contents":          repeat(5, repeat(5, nil, maxEntries+1), 1),
		"packed dimensions": repeat(5, repeat(3, make([]byte, maxDims+1), 1), 1),
		"dimensions":        repeat(5, bytes.Repeat([]byte{3 << 3, 1}, maxDims+1), 1),
	} {
		m := newMessage()
		if err := m.decode(mem.BufferSlice{mem.SliceBuffer(data)}, nil); err != errTooMany {
			t.Errorf("%s: got %v, want %v", name, err, errTooMany)
		}
		m.release()
	}
}

// A client may send a second message where one is expected; grpc decodes it
// into the same value before it refuses the call.
func TestCodecReadsASecondMessageInPlaceOfTheFirst(t *testing.T) {
	pool := &countingPool{}
	m := newMessage()
	for _, name := range []string{"first", "second"} {
		data, err := proto.Marshal(&pb.ModelInferRequest{ModelName: name, Id: "1", RawInputContents: [][]byte{{1}}})
		if err != nil {
			t.Fatal(err)
		}
		pieces := split(data, 0, pool)
		if err := m.decode(pieces, nil); err != nil {
			t.Fatal(err)
		}
		pieces.Free()
		if m.model != name || len(m.raw) != 1 {
			t.Errorf("got model %q with %d tensors, want %q with 1", m.model, len(m.raw), name)
		}
	}
	m.release()
	if pool.out != 0 {
		t.Errorf("got %d buffers out, want none", pool.out)
	}
}
