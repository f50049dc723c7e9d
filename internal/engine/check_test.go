package engine

import (
	"encoding/binary"
	"strings"
	"testing"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func TestInferTellsEveryFaultOfARequest(t *testing.T) {
	e := standard(t)
	const prefix = "[request id: 42] "
	with := func(i int, change func(*infer.Input)) []infer.Input {
		ins := good()
		change(&ins[i])
		return ins
	}
	tests := []struct {
		name    string
		model   string
		inputs  []infer.Input
		outputs []infer.Wanted
		want    string
	}{
		{"the output is unknown", "two", good(), []infer.Wanted{{Name: "NOPE"}}, "unexpected inference output 'NOPE' for model 'two'"},
		{"two outputs are unknown", "two", good(), []infer.Wanted{{Name: "Z"}, {Name: "A"}}, "unexpected inference output 'A' for model 'two'"},
		{"an input is given twice", "two", append(good(), good()[0]), nil, prefix + "input 'INPUT0' already exists in request"},
		{"one of two inputs is given twice", "two", []infer.Input{good()[0], good()[0]}, nil, prefix + "input 'INPUT0' already exists in request"},
		{"an input is missing", "two", good()[:1], nil, prefix + "expected 2 inputs but got 1 inputs for model 'two'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required input(s)."},
		{"no input is given", "two", nil, nil, prefix + "expected 2 inputs but got 0 inputs for model 'two'. Got input(s) [], but missing required input(s) ['INPUT0','INPUT1']. Please provide all required input(s)."},
		{"an input too many", "two", append(good(), in("INPUT2", tensor.Int32, nil, "")), nil, prefix + "expected 2 inputs but got 3 inputs for model 'two'. Got input(s) ['INPUT0','INPUT1','INPUT2'], but missing required input(s) []. Please provide all required input(s)."},
		{"a required input is missing beside optional ones", "opt", nil, nil, prefix + "expected number of inputs between 1 and 2 but got 0 inputs for model 'opt'. Got input(s) [], but missing required input(s) ['INPUT0']. Please provide all required input(s)."},
		{"only the optional input is given", "opt", []infer.Input{in("INPUT1", tensor.FP32, tensor.Shape{3}, strings.Repeat("0", 12))}, nil, prefix + "expected number of inputs between 1 and 2 but got 1 inputs for model 'opt'. Got input(s) ['INPUT1'], but missing required input(s) ['INPUT0']. Please provide all required input(s)."},
		{"the input is unknown", "two", with(0, func(i *infer.Input) { i.Name = "NOPE" }), nil, "unexpected inference input 'NOPE' for model 'two'"},
		{"a shape without the batch dimension", "two", with(0, func(i *infer.Input) { i.Shape = nil }), nil, prefix + "input 'INPUT0' has no shape but model requires batch dimension for 'two'"},
		{"the batch dimensions differ", "two", with(1, func(i *infer.Input) { i.Shape = tensor.Shape{2, 1} }), nil, prefix + "input 'INPUT0' batch size does not match other inputs for 'two'"},
		{"the batch dimensions are negative", "two", []infer.Input{in("INPUT0", tensor.Int32, tensor.Shape{-1, 2}, ""), in("INPUT1", tensor.Bytes, tensor.Shape{-1, 1}, "")}, nil, prefix + "input 'INPUT0' batch size does not match other inputs for 'two'"},
		{"the batch is too large", "two", []infer.Input{in("INPUT0", tensor.Int32, tensor.Shape{9, 2}, ""), in("INPUT1", tensor.Bytes, tensor.Shape{9, 1}, "")}, nil, prefix + "inference request batch-size must be <= 8 for 'two'"},
		{"another data type", "two", with(0, func(i *infer.Input) { i.Type = tensor.FP32 }), nil, prefix + "inference input 'INPUT0' data-type is 'FP32', but model 'two' expects 'INT32'"},
		{"the first dimension is left open", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{-1, 2}, "")}, nil, prefix + "All input dimensions should be specified for input 'INPUT0' for model 'one', got [-1,2]"},
		{"a dimension is left open in another rank", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{-1}, "")}, nil, prefix + "unexpected shape for input 'INPUT0' for model 'one'. Expected [-1,2], got [-1]. "},
		{"a dimension below -1", "two", with(0, func(i *infer.Input) { i.Shape = tensor.Shape{1, -5} }), nil, prefix + "unexpected shape for input 'INPUT0' for model 'two'. Expected [-1,2], got [1,-5]. " + batchDimNote},
		{"a dimension below -1 where any fits", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{-5, 2}, "")}, nil, prefix + "All input dimensions should be specified for input 'INPUT0' for model 'one', got [-5,2]"},
		{"a dimension is left open", "two", with(1, func(i *infer.Input) { i.Shape = tensor.Shape{1, -1} }), nil, prefix + "All input dimensions should be specified for input 'INPUT1' for model 'two', got [1,-1]"},
		{"another shape of both", "two", []infer.Input{in("INPUT0", tensor.Int32, tensor.Shape{1, 3}, ""), in("INPUT1", tensor.Bytes, tensor.Shape{1}, "")}, nil, prefix + "unexpected shape for input 'INPUT1' for model 'two'. Expected [-1,-1], got [1]. " + batchDimNote},
		{"another shape", "two", with(0, func(i *infer.Input) { i.Shape = tensor.Shape{1, 3} }), nil, prefix + "unexpected shape for input 'INPUT0' for model 'two'. Expected [-1,2], got [1,3]. " + batchDimNote},
		{"another shape without a batch dimension", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{2, 3}, "")}, nil, prefix + "unexpected shape for input 'INPUT0' for model 'one'. Expected [-1,2], got [2,3]. "},
		{"too few bytes", "two", with(0, func(i *infer.Input) { i.Data.First = i.Data.First[:7] }), nil, prefix + "input byte size mismatch for input 'INPUT0' for model 'two'. Expected 8, got 7"},
		{"a batch of none counts as one row", "two", []infer.Input{in("INPUT0", tensor.Int32, tensor.Shape{0, 2}, ""), in("INPUT1", tensor.Bytes, tensor.Shape{0, 1}, "")}, nil, prefix + "input byte size mismatch for input 'INPUT0' for model 'two'. Expected 8, got 0"},
		{"more elements than can be counted", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{1 << 62, 2}, "")}, nil, prefix + "invalid shape for input 'INPUT0': shape [4611686018427387904,2] causes total element count to exceed maximum size of 9223372036854775807"},
		{"more bytes than can be counted", "one", []infer.Input{in("INPUT0", tensor.FP32, tensor.Shape{1 << 61, 2}, "")}, nil, prefix + "byte size overflow for input 'INPUT0': element count (4611686018427387904) * data type size (4) exceeds maximum allowed size (9223372036854775807)"},
		{"a string's length is cut", "two", with(1, func(i *infer.Input) { i.Data.First = []byte("\x03\x00") }), nil, prefix + "incomplete string length indicator for inference input 'INPUT1' for model 'two', expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer."},
		{"a byte after the last string", "two", with(1, func(i *infer.Input) { i.Data.First = []byte(oneString + "x") }), nil, prefix + "incomplete string length indicator for inference input 'INPUT1' for model 'two', expecting 4 bytes but only 1 bytes available. Please make sure the string length indicator is in one buffer."},
		{"a string too many", "two", with(1, func(i *infer.Input) { i.Data.First = []byte(oneString + oneString) }), nil, prefix + "unexpected number of string elements 2 for inference input 'INPUT1' for model 'two', expecting 1"},
		{"a string too few", "two", with(1, func(i *infer.Input) { i.Shape = tensor.Shape{1, 2} }), nil, prefix + "expected 2 string elements for inference input 'INPUT1' for model 'two', got 1"},
		{"a string is cut", "two", with(1, func(i *infer.Input) { i.Data.First = []byte("\x09\x00\x00\x00ab") }), nil, "incomplete string data for inference input 'INPUT1', expecting string of length 9 but only 2 bytes available"},
		{"a string is cut in pieces", "two", with(1, func(i *infer.Input) {
			i.Data = infer.Data{First: []byte("\x09\x00"), Rest: [][]byte{[]byte("\x00\x00a"), []byte("b")}}
		}), nil, "incomplete string data for inference input 'INPUT1', expecting string of length 9 but only 2 bytes available"},
		{"a string too few, and the last is cut", "two", with(1, func(i *infer.Input) {
			i.Shape, i.Data.First = tensor.Shape{1, 2}, []byte("\x09\x00\x00\x00ab")
		}), nil, prefix + "expected 2 string elements for inference input 'INPUT1' for model 'two', got 1"},
		{"a batch of none with the bytes of one row", "two", []infer.Input{in("INPUT0", tensor.Int32, tensor.Shape{0, 2}, eightBytes), in("INPUT1", tensor.Bytes, tensor.Shape{0, 1}, oneString)}, nil, "input 'INPUT0' batch size does not match other inputs for 'two'"},
		{"classes of strings", "two", good(), []infer.Wanted{{Name: "OUTPUT1", Classes: 1}}, "class result not available for output due to unsupported type 'BYTES'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := e.find(tt.model, infer.LatestVersion)
			if err != nil {
				t.Fatal(err)
			}
			r := infer.NewRequest()
			defer r.Release()
			r.ID, r.Inputs, r.Outputs = "42", tt.inputs, tt.outputs
			err = v.Infer(t.Context(), r)
			if err == nil || status.Public(err) != tt.want || status.CodeOf(err) != status.InvalidArgument {
				t.Errorf("got  %v (%v)\nwant %v", err, status.CodeOf(err), tt.want)
			}
		})
	}
}

// FuzzCheckStrings holds checkStrings to what it is for: data that it lets pass
// is that many elements exactly, which backends then cut without looking.
func FuzzCheckStrings(f *testing.F) {
	f.Add([]byte{}, 0, uint16(0))
	f.Add([]byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}, 2, uint16(2))
	f.Add([]byte{9, 0, 0, 0, 'a'}, 0, uint16(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, cut int, elements uint16) {
		want := int64(elements)
		r := infer.NewRequest()
		defer r.Release()
		input := r.AddInput()
		input.Data.First = data
		if cut > 0 && cut < len(data) {
			input.Data = infer.Data{First: data[:cut], Rest: [][]byte{data[cut:]}}
		}
		if checkStrings(&model.Signature{Name: "m"}, r, input, want) != nil {
			return
		}
		if len(input.Data.Rest) > 0 {
			t.Errorf("%x passed in %d pieces, want one", data, 1+len(input.Data.Rest))
		}
		n := int64(0)
		for rest := input.Data.First; len(rest) > 0; n++ {
			rest = rest[4+int(binary.LittleEndian.Uint32(rest)):]
		}
		if n != want {
			t.Errorf("%x passed as %d elements, has %d", data, want, n)
		}
	})
}
