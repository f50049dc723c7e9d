package python

import (
	"encoding/binary"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// plainSlot returns a slot in memory of our own that has a result in it.
func plainSlot(sequence uint64, answers uint32, data, table []byte) *slot {
	s := &slot{out: make([]byte, headSize, headSize+len(data)+len(table))}
	s.out = append(append(s.out, data...), table...)
	binary.LittleEndian.PutUint64(s.out, sequence)
	binary.LittleEndian.PutUint32(s.out[12:], answers)
	binary.LittleEndian.PutUint64(s.out[24:], uint64(headSize+len(data)))
	binary.LittleEndian.PutUint64(s.out[32:], uint64(len(table)))
	return s
}

// resultModel has an output of each kind: fixed, variable, strings, reshaped.
func resultModel() *loaded {
	cfg := &modelpb.ModelConfig{
		Name: "m", MaxBatchSize: 8,
		Output: []*modelpb.ModelOutput{
			{Name: "A", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{2}},
			{Name: "B", DataType: modelpb.DataType_TYPE_INT8, Dims: []int64{-1, -1}},
			{Name: "S", DataType: modelpb.DataType_TYPE_STRING, Dims: []int64{-1}},
			{Name: "R", DataType: modelpb.DataType_TYPE_UINT8, Dims: []int64{1}, Reshape: &modelpb.ModelTensorReshape{}},
		},
	}
	m := &loaded{sig: model.NewSignature(cfg), cfg: cfg}
	for _, t := range m.sig.Outputs {
		m.outputs = append(m.outputs, newPort(t, true))
	}
	return m
}

func appendAnswer(b []byte, request uint32, kind, code byte, outputs uint16, more uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, request)
	b = append(b, kind, code)
	b = binary.LittleEndian.AppendUint16(b, outputs)
	b = binary.LittleEndian.AppendUint32(b, more)
	return binary.LittleEndian.AppendUint32(b, 0)
}

func appendOutput(b []byte, index uint16, t tensor.Type, offset, size uint64, dims ...int64) []byte {
	b = binary.LittleEndian.AppendUint16(b, index)
	b = append(b, byte(t), byte(len(dims)), 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, offset)
	b = binary.LittleEndian.AppendUint64(b, size)
	for _, d := range dims {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	return b
}

// threeRequests have 1, 2 and 1 rows; the second wants the strings only.
func threeRequests() []*infer.Request {
	var list []*infer.Request
	for _, rows := range []int{1, 2, 1} {
		r := infer.NewRequest()
		r.Rows = rows
		list = append(list, r)
	}
	list[1].Outputs = []infer.Wanted{{Name: "S"}}
	return list
}

// FuzzResult has the reader look at what a worker may have written. Whatever that
// is, every output that is handed out has as many bytes as its shape, and strings
// can be walked over to their end.
func FuzzResult(f *testing.F) {
	data := append(make([]byte, 32), "\x01\x00\x00\x00a\x00\x00\x00\x00\x02\x00\x00\x00bc\x01\x00\x00\x00d"...)
	whole := appendAnswer(nil, allRequests, answerOutputs, 0, 3, 1)
	whole = appendOutput(whole, 0, tensor.FP32, headSize, 32, 4, 2)
	whole = appendOutput(whole, 2, tensor.Bytes, headSize+32, 20, 4, 1)
	whole = appendOutput(whole, 3, tensor.Uint8, headSize, 4, 4)
	whole = append(whole, 1, 0, 1, 0, 8, 0, 0, 0, 'p', 1, 2, 3, 4, 5, 6, 7, 8)
	f.Add(uint32(1), data, whole)
	single := appendAnswer(nil, 0, answerError, 3, 0, 2)
	single = appendAnswer(append(single, "no"...), 2, answerOutputs, 0, 1, 0)
	single = appendOutput(single, 1, tensor.Int8, headSize, 6, 1, 2, 3)
	single = appendAnswer(single, 1, answerOutputs, 0, 0, 0)
	f.Add(uint32(3), data, single)
	f.Add(uint32(1), data, appendOutput(appendAnswer(nil, 0, 0, 0, 1, 0), 0, tensor.FP32, 1<<63, 1<<63, 1, 2))
	m := resultModel()
	f.Fuzz(func(t *testing.T, answers uint32, data, table []byte) {
		requests := threeRequests()
		rd := &reader{model: m, limit: 1 << 20}
		err := rd.read(plainSlot(9, answers, data, table), 9, requests, 4)
		for n, r := range requests {
			if err != nil && (r.Err != nil || len(r.Response.Outputs) > 0) {
				t.Errorf("request %d has something of a result that cannot be read", n)
			}
			for _, out := range r.Response.Outputs {
				checkOutput(t, n, &out)
			}
			r.Release()
		}
	})
}

func checkOutput(t *testing.T, n int, out *infer.Output) {
	t.Helper()
	if out.Type == tensor.Bytes {
		elements, _ := out.Shape.Elements()
		if end, ok := walkStrings(out.Data, elements); !ok || end != len(out.Data) {
			t.Errorf("request %d: output %s of shape %s has strings %q", n, out.Name, out.Shape, out.Data)
		}
		return
	}
	if want, ok := out.Shape.Bytes(out.Type); !ok || want != int64(len(out.Data)) {
		t.Errorf("request %d: output %s of shape %s has %d bytes, want %d", n, out.Name, out.Shape, len(out.Data), want)
	}
}

// A model written for Triton may give an output another type or shape than its
// configuration has.
func TestResultHandsOnWhatIsGivenForOneRequest(t *testing.T) {
	cases := []struct {
		name  string
		index uint16
		typ   tensor.Type
		shape tensor.Shape
		bytes uint64
	}{
		{"as configured", 0, tensor.FP32, tensor.Shape{2, 2}, 16},
		{"wider", 0, tensor.FP64, tensor.Shape{2, 2}, 32},
		{"flat", 0, tensor.FP32, tensor.Shape{4}, 16},
		{"with a dimension more", 0, tensor.FP32, tensor.Shape{2, 1, 2}, 16},
		{"with rows elsewhere", 0, tensor.FP32, tensor.Shape{1, 4}, 16},
		{"variable and flat", 1, tensor.Int8, tensor.Shape{6}, 6},
		{"of another kind", 0, tensor.Int32, tensor.Shape{2, 2}, 16},
		{"truth for numbers", 1, tensor.Bool, tensor.Shape{2, 1, 1}, 2},
		{"larger", 0, tensor.FP32, tensor.Shape{2, 3}, 24},
		{"a row more", 0, tensor.FP32, tensor.Shape{3, 2}, 24},
		{"variable and not for all rows", 1, tensor.Int8, tensor.Shape{5}, 5},
		{"a single number", 0, tensor.FP32, tensor.Shape{}, 4},
		{"empty", 0, tensor.FP32, tensor.Shape{0}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := infer.NewRequest()
			defer r.Release()
			r.Rows = 2
			table := appendOutput(appendAnswer(nil, 0, answerOutputs, 0, 1, 0), c.index, c.typ, headSize, c.bytes, c.shape...)
			rd := &reader{model: resultModel(), limit: 1 << 20}
			if err := rd.read(plainSlot(9, 1, make([]byte, 32), table), 9, []*infer.Request{r}, 2); err != nil {
				t.Fatal(err)
			}
			if r.Err != nil || len(r.Response.Outputs) != 1 {
				t.Fatalf("got error %v and %d outputs, want one output", r.Err, len(r.Response.Outputs))
			}
			if out := r.Response.Outputs[0]; out.Type != c.typ || !out.Shape.Equal(c.shape) {
				t.Errorf("got %s of shape %s, want %s of %s", out.Type, out.Shape, c.typ, c.shape)
			}
		})
	}
}

func TestResultOfAModelWithoutRowsIsHandedOnWhateverItIs(t *testing.T) {
	m := resultModel()
	for i := range m.outputs {
		m.outputs[i].batched = false
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Rows = 1
	table := appendOutput(appendAnswer(nil, 0, answerOutputs, 0, 1, 0), 0, tensor.Int64, headSize, 24, 3)
	rd := &reader{model: m, limit: 1 << 20}
	if err := rd.read(plainSlot(9, 1, make([]byte, 24), table), 9, []*infer.Request{r}, 1); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	if out := r.Response.Outputs[0]; out.Type != tensor.Int64 || !out.Shape.Equal(tensor.Shape{3}) || len(out.Data) != 24 {
		t.Errorf("got %s of shape %s in %d bytes, want INT64 of [3] in 24", out.Type, out.Shape, len(out.Data))
	}
}

// FuzzResponse has the streams look at messages of a decoupled model's worker.
func FuzzResponse(f *testing.F) {
	head := func(sequence uint64, request, flags, table uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, sequence)
		b = binary.LittleEndian.AppendUint32(b, request)
		b = binary.LittleEndian.AppendUint32(b, flags)
		return binary.LittleEndian.AppendUint32(b, table)
	}
	table := appendOutput(appendAnswer(nil, 0, answerOutputs, 0, 1, 0), 0, tensor.FP32, 0, 8, 1, 2)
	f.Add(append(append(head(5, 0, responseFinal, uint32(len(table))), table...), make([]byte, 8)...))
	f.Add(head(5, 0, responseFinal|responseEmpty, 0))
	f.Add(append(head(5, 0, 0, 18), append(appendAnswer(nil, 0, answerError, 1, 0, 2), "no"...)...))
	m := resultModel()
	f.Fuzz(func(t *testing.T, payload []byte) {
		s := newStreams(m)
		s.cancel = func(requestKey) {}
		s.reader.limit = 1 << 20
		r := infer.NewRequest()
		r.Rows = 1
		r.Stream = infer.NewStream(1<<20, func(infer.Delivery) {})
		s.add(5, []*infer.Request{r})
		err := s.respond(payload)
		s.end(errSilent)
		for {
			resp, final, nextErr := r.Stream.Next(t.Context())
			if resp != nil && resp.Err == nil {
				if err != nil {
					t.Error("a response came of a message that cannot be read")
				}
				for i := range resp.Outputs {
					checkOutput(t, 0, &resp.Outputs[i])
				}
			}
			if final || nextErr != nil {
				break
			}
		}
		r.Release()
	})
}
