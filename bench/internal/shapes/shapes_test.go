package shapes

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

// written are the models that need no package.
func written() []peer.Model {
	return []peer.Model{GRU(), peer.MLP(), CacheBound(), LSTM(), LSTMLoops(), Transformer(), Identity(), IdentityBig(), AddSub()}
}

// TestRowsOfABatchAreAsAlone runs every model with one row and with that row
// three times: each row of the batch must be what the row alone gave.
func TestRowsOfABatchAreAsAlone(t *testing.T) {
	lib, err := ort.Open(onnxtest.Library(t), ort.Threads{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range written() {
		t.Run(m.Name, func(t *testing.T) {
			b, err := m.ONNX()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "model.onnx")
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := lib.NewSession(path, ort.Options{Intra: 1, Inter: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			one, three := run(t, s, m, 1), run(t, s, m, 3)
			total := 0
			for i, row := range one {
				total += len(row)
				for k, want := range row {
					for r := range 3 {
						if got := three[i][r*len(row)+k]; math.Abs(got-want) > 1e-4*max(1, math.Abs(want)) {
							t.Fatalf("output %d, row %d, element %d: got %v, want %v as alone", i, r, k, got, want)
						}
					}
				}
			}
			if total != m.Answer {
				t.Errorf("got %d elements in the outputs of a row, want %d", total, m.Answer)
			}
			if flat(one[0]) {
				t.Error("got an output of equal numbers, want one that depends on the input")
			}
		})
	}
}

// flat reports whether all values are equal or one is not finite.
func flat(values []float64) bool {
	same := true
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return true
		}
		same = same && v == values[0]
	}
	return same
}

// run runs the model once with its row so many times and returns the elements of
// each output.
func run(t *testing.T, s *ort.Session, m peer.Model, rows int) [][]float64 {
	t.Helper()
	infos, err := s.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	var in, out []string
	for _, i := range infos {
		out = append(out, i.Name)
	}
	call := ort.NewCall(s, nil)
	var values []ort.Value
	for _, input := range m.Inputs {
		in = append(in, input.Name)
		values = append(values, repeated(t, call, s.Library(), input, rows))
	}
	results := make([]ort.Value, len(out))
	if err := call.Run(ort.NewNames(in), values, ort.NewNames(out), results); err != nil {
		t.Fatal(err)
	}
	var all [][]float64
	for _, v := range results {
		_, shape, err := call.Describe(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		if shape[0] != int64(rows) {
			t.Fatalf("got an output of shape %v, want %d rows", shape, rows)
		}
		n := 1
		for _, d := range shape {
			n *= int(d)
		}
		at, err := call.Data(v)
		if err != nil {
			t.Fatal(err)
		}
		var elements []float64
		for raw := ort.Bytes(at, 4*n); len(raw) > 0; raw = raw[4:] {
			elements = append(elements, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
		all = append(all, elements)
		call.Release(v)
	}
	for _, v := range values {
		call.Release(v)
	}
	return all
}

func repeated(t *testing.T, call *ort.Call, lib *ort.Library, input peer.Tensor, rows int) ort.Value {
	t.Helper()
	v, err := lib.NewOwnTensor(tensor.FP32, append(tensor.Shape{int64(rows)}, input.Shape[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	at, err := call.Data(v)
	if err != nil {
		t.Fatal(err)
	}
	row := input.Raw()
	for all := ort.Bytes(at, rows*len(row)); len(all) > 0; all = all[len(row):] {
		copy(all, row)
	}
	return v
}

func TestModelsHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range All(t.TempDir()) {
		if seen[m.Name] {
			t.Errorf("got two models named %q, want one", m.Name)
		}
		seen[m.Name] = true
	}
}
