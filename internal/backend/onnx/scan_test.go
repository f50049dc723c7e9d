package onnx

import (
	"bytes"
	"testing"

	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// nested returns a model that has the operator in a subgraph only, behind a
// large constant.
func nested(op string) onnxtest.Model {
	inner := onnxtest.Model{Nodes: []onnxtest.Node{onnxtest.NodeOf(op, []string{"x"}, "y")}}
	node := onnxtest.NodeOf("If", []string{"c"}, "z")
	node.Attrs = []onnxtest.Attr{{Name: "alpha", Value: float32(1)}, {Name: "axes", Value: []int64{1, 2}}, {Name: "then_branch", Value: inner}}
	return onnxtest.Model{
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{"a", "b"}, "c"), node},
		Initializers: []onnxtest.Initializer{{Name: "K", Type: tensor.FP32, Dims: []int64{1 << 16}, Raw: make([]byte, 1<<18)}},
	}
}

func TestOperatorsAreFoundWhereverTheyAre(t *testing.T) {
	for _, c := range []struct {
		name string
		m    onnxtest.Model
		want bool
	}{
		{"at the top", onnxtest.Model{Nodes: []onnxtest.Node{onnxtest.NodeOf("Wanted", nil)}}, true},
		{"in a subgraph", nested("Wanted"), true},
		{"nowhere", nested("Other"), false},
		{"only as a tensor's name", onnxtest.Model{Nodes: []onnxtest.Node{onnxtest.NodeOf("Other", []string{"Wanted"}, "Wanted")}}, false},
	} {
		got, err := hasOperator(bytes.NewReader(c.m.Marshal()), "Wanted")
		if err != nil || got != c.want {
			t.Errorf("%s: got %v %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestAScanOfDeepGraphsEnds(t *testing.T) {
	m := onnxtest.Model{}
	for range 4 * maxDepth {
		node := onnxtest.NodeOf("If", nil)
		node.Attrs = []onnxtest.Attr{{Name: "then_branch", Value: m}}
		m = onnxtest.Model{Nodes: []onnxtest.Node{node}}
	}
	if _, err := hasOperator(bytes.NewReader(m.Marshal()), "Wanted"); err == nil {
		t.Error("got no error, want one over the depth")
	}
}

// FuzzHasOperator holds the scan to its promise that no file breaks it: it
// ends, and finds no operator whose name is not in the file.
func FuzzHasOperator(f *testing.F) {
	f.Add(onnxtest.AddSub(tensor.FP32, 2).Marshal())
	f.Add(nested("Wanted").Marshal()[:600])
	f.Add([]byte{0x3a, 0x04, 0x0a, 0x02, 0x22, 0x00})
	f.Add([]byte("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, file []byte) {
		found, _ := hasOperator(bytes.NewReader(file), "Add")
		if found && !bytes.Contains(file, []byte("Add")) {
			t.Errorf("got Add in %x, which has none", file)
		}
	})
}
