package python

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// callBytes returns the message of a call with one input.
func callBytes(kind byte, size, offset, bytes uint64, typ byte, extras string, shape ...int64) []byte {
	le := binary.LittleEndian
	table := le.AppendUint64(nil, math.MaxUint64) // version -1
	for _, n := range []uint16{1, 1, 5} {
		table = le.AppendUint16(table, n)
	}
	table = append(le.AppendUint16(append(table, "model"...), 1), 'O')
	table = append(le.AppendUint16(table, 1), typ, byte(len(shape)), 'I')
	for _, d := range shape {
		table = le.AppendUint64(table, uint64(d))
	}
	table = le.AppendUint64(le.AppendUint64(table, offset), bytes)
	b := le.AppendUint32(le.AppendUint32(nil, 7), 3)
	b = le.AppendUint64(le.AppendUint64(b, 11), size)
	b = le.AppendUint64(le.AppendUint64(b, 1000), 9)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(table))), uint32(len(extras)))
	b = append(b, 1, kind, 0, 0, 0, 0, 0, 0)
	return append(append(b, table...), extras...)
}

func TestCallsAreRead(t *testing.T) {
	var tables callTables
	var msg callMessage
	if err := msg.read(callBytes(callDirect, 64, 0, 16, byte(tensor.FP32), `{"id":"a","params":{"p":1}}`, 1, 4), &tables); err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	defer r.Release()
	if err := msg.fill(r, &slot{out: make([]byte, 64)}); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(r.Model, r.Version, r.ID, r.Timeout, r.Sequence.ID, r.Sequence.Start, r.Params[0].Int, r.Outputs[0].Name, r.Inputs[0].Name, r.Inputs[0].Shape, r.Inputs[0].Data.Size(), msg.id, msg.number, msg.batch, msg.direct)
	if want := "model -1 a 1ms 9 true 1 OI[1,4] 16 7 3 11 true"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	first := msg.table
	if err := msg.read(callBytes(0, 64, 0, 16, byte(tensor.FP32), "", 1, 4), &tables); err != nil || msg.table != first {
		t.Errorf("got another table for the same bytes, %v, want the first", err)
	}
	if err := msg.read(callBytes(callUncached, 64, 0, 8, byte(tensor.FP32), "", 1, 2), &tables); err != nil || len(tables) != 1 {
		t.Errorf("got %d tables, %v, want 1: a call with strings keeps none", len(tables), err)
	}
}

// FuzzCall reads a worker's message about a call: whatever it says, the inputs
// lie in the worker's half.
func FuzzCall(f *testing.F) {
	f.Add(callBytes(0, 64, 0, 16, byte(tensor.FP32), `{"params":{"a":1,"b":"x","c":true,"d":1.5}}`, 1, 4))
	f.Add(callBytes(callUncached, 64, 8, 56, byte(tensor.Bytes), "", 1))
	f.Add(callBytes(0, 64, math.MaxUint64, 2, byte(tensor.FP32), `{"params":{"x":[1]}}`))
	f.Add(callBytes(callDecoupled, 64, 0, 65, 200, ""))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var tables callTables
		var msg callMessage
		s := &slot{out: make([]byte, 4096)}
		if msg.read(payload, &tables) != nil || msg.size > uint64(len(s.out)) {
			t.Skip()
		}
		r := infer.NewRequest()
		defer r.Release()
		if msg.fill(r, s) != nil {
			return
		}
		for i := range r.Inputs {
			if got, want := uint64(r.Inputs[i].Data.Size()), msg.table.inputs[i].size; got != want || want > msg.size {
				t.Errorf("input %d: got %d bytes, want %d of %d", i, got, want, msg.size)
			}
		}
	})
}

func TestCallsSayWhatTheirParametersAre(t *testing.T) {
	for _, c := range []struct {
		value any
		want  infer.Param
	}{
		{"text", infer.Param{Name: "p", Kind: infer.ParamString, String: "text"}},
		{true, infer.Param{Name: "p", Kind: infer.ParamBool, Bool: true}},
		{3.0, infer.Param{Name: "p", Kind: infer.ParamInt, Int: 3}},
		{0.5, infer.Param{Name: "p", Kind: infer.ParamFloat, Float: 0.5}},
	} {
		if got, err := callParam("p", c.value); err != nil || got != c.want {
			t.Errorf("%v: got %v, %v, want %v", c.value, got, err, c.want)
		}
	}
	if _, err := callParam("p", []any{1}); err == nil {
		t.Error("a list: got no error, want one")
	}
}
