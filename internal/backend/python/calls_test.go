package python

import (
	"encoding/json"
	"testing"

	"shoal/internal/infer"
)

// FuzzCall reads a worker's message about a call: whatever it says, the inputs
// lie in the worker's half.
func FuzzCall(f *testing.F) {
	f.Add([]byte(`{"call":1,"slot":0,"size":64,"model":"m","version":-1,"params":{"a":1,"b":"x","c":true,"d":1.5},"wanted":["O"],"inputs":[{"name":"I","type":11,"shape":[1,4],"offset":0,"size":16}]}`))
	f.Add([]byte(`{"size":64,"inputs":[{"type":13,"shape":[1],"offset":8,"size":56}]}`))
	f.Add([]byte(`{"size":64,"inputs":[{"type":11,"offset":18446744073709551615,"size":2}],"params":{"x":[1]}}`))
	f.Add([]byte(`{"size":64,"decoupled":true,"inputs":[{"type":300,"offset":0,"size":65}]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var msg callMessage
		s := &slot{out: make([]byte, 4096)}
		if json.Unmarshal(payload, &msg) != nil || msg.Size > uint64(len(s.out)) {
			t.Skip()
		}
		r := infer.NewRequest()
		defer r.Release()
		if msg.fill(r, s) != nil {
			return
		}
		for i := range r.Inputs {
			if got, want := uint64(r.Inputs[i].Data.Size()), msg.Inputs[i].Size; got != want || want > msg.Size {
				t.Errorf("input %d: got %d bytes, want %d of %d", i, got, want, msg.Size)
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
