package session

import (
	"bytes"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

func FuzzParseTable(f *testing.F) {
	head := func(inputs, wanted, params, id byte) []byte {
		return append([]byte{inputs, 0, wanted, 0, params, 0, id, 0}, make([]byte, 16)...)
	}
	input := append([]byte{11, 1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, 'x')
	f.Add(append(head(1, 0, 0, 0), input...))
	f.Add(append(append(head(1, 1, 0, 2), 'i', 'd'), append(input, 1, 0, 'y')...))
	f.Add(appendParam(head(0, 0, 1, 0), &infer.Param{Name: "p", Kind: infer.ParamString, String: "v"}))
	f.Add(appendParam(head(0, 0, 1, 0), &infer.Param{Name: "b", Kind: infer.ParamBool, Bool: true}))
	f.Fuzz(func(t *testing.T, table []byte) {
		memory := make([]byte, 256)
		r := infer.NewRequest()
		defer r.Release()
		if parseTable(table, memory, r) != nil {
			return
		}
		for i := range r.Inputs {
			in := &r.Inputs[i]
			if len(in.Data.First) > len(memory) || len(in.Shape) > maxRank || len(in.Name) > len(table) {
				t.Errorf("got input %+v of %d bytes of memory", in, len(memory))
			}
		}
		if len(r.Inputs)+len(r.Outputs)+len(r.Params) > len(table) {
			t.Errorf("got %d inputs, %d outputs and %d parameters from %d bytes", len(r.Inputs), len(r.Outputs), len(r.Params), len(table))
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte{msgWake, 0, 0, 0})
	f.Add([]byte{msgRoom, 0, 0, 0, 1, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{msgCancel, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0})
	f.Add(append([]byte{msgHello, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}, "model"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMessage(b); err == nil && m.slot >= maxSlots {
			t.Errorf("got slot %d", m.slot)
		}
		if h, err := parseHello(b); err == nil && len(h.model) > len(b) {
			t.Errorf("got model %q", h.model)
		}
	})
}

func TestAnswersHaveTheSizeThatWasReserved(t *testing.T) {
	resp := infer.Response{Version: 3, Params: []infer.Param{
		{Name: "text", Kind: infer.ParamString, String: "value"},
		{Name: "truth", Kind: infer.ParamBool, Bool: true},
		{Name: "number", Kind: infer.ParamFloat, Float: 1.5},
	}, Outputs: []infer.Output{
		{Name: "OUTPUT0", Type: tensor.FP32, Shape: tensor.Shape{1, 2}, Data: []byte("12345678")},
		{Name: "OUTPUT1", Type: tensor.Bytes, Shape: tensor.Shape{0}},
	}}
	_, size := answerSize(&resp)
	memory := make([]byte, size)
	writeAnswer(memory, 7, &resp)
	r := reader{b: memory[outHead:]}
	kind, rank, name := r.u8(), r.u8(), r.u16()
	offset, bytesOf := r.u64(), r.u64()
	if kind != byte(tensor.FP32) || rank != 2 || offset%alignment != 0 || !bytes.Equal(memory[offset:offset+bytesOf], resp.Outputs[0].Data) {
		t.Errorf("got type %d, rank %d, %d bytes at %d", kind, rank, bytesOf, offset)
	}
	r.take(16)
	if got := r.text(name); got != "OUTPUT0" {
		t.Errorf("got %q", got)
	}
	r.take(20 + 8 + len("OUTPUT1"))
	for i := range resp.Params {
		if p, ok := r.param(); !ok || p != resp.Params[i] {
			t.Errorf("got %+v, %v, want %+v", p, ok, resp.Params[i])
		}
	}
}
