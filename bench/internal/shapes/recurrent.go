package shapes

import (
	"sync"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/tensor"
)

// answer is the number of elements of a row of every answer here.
const answer = 16

// A recurrent is the size of a recurrent layer: steps of features elements go
// through a state of hidden elements.
type recurrent struct{ steps, features, hidden int64 }

var (
	gruSize   = recurrent{steps: 40, features: 64, hidden: 384}
	lstmSize  = recurrent{steps: 64, features: 16, hidden: 96}
	loopsSize = recurrent{steps: 896, features: 8, hidden: 64}
)

// loopLayers is how many layers, one behind the other, the LSTM in loops has.
const loopLayers = 4

var (
	gruFile   = sync.OnceValue(func() []byte { return gruSize.operator("GRU", 3) })
	lstmFile  = sync.OnceValue(func() []byte { return lstmSize.operator("LSTM", 4) })
	loopsFile = sync.OnceValue(func() []byte { return loopsSize.loops() })
)

// GRU returns a recurrent layer whose cost is nearly linear in the rows.
func GRU() peer.Model { return model("gru", answer, gruFile, gruSize.steps, gruSize.features) }

// LSTM returns a small encoder of a fifth of a millisecond.
func LSTM() peer.Model { return model("lstm", answer, lstmFile, lstmSize.steps, lstmSize.features) }

// LSTMLoops returns an LSTM whose steps are a loop in the graph: hundreds of
// small nodes, whose overhead a batch shares.
func LSTMLoops() peer.Model {
	return model("lstm_loops", answer, loopsFile, loopsSize.steps, loopsSize.features)
}

// stepsFirst adds the input with the steps as its first dimension, as ONNX's
// recurrent operators want it.
func (r recurrent) stepsFirst(g *graph) string {
	return g.node("Transpose", []string{peer.Input}, attr("perm", []int64{1, 0, 2}))
}

// operator writes a model of one of ONNX's recurrent operators, which has so many
// gates, and a dense layer.
func (r recurrent) operator(op string, gates int64) []byte {
	g := newGraph()
	x := r.stepsFirst(g)
	w := g.weights(int(r.features), 1, gates*r.hidden, r.features)
	u := g.weights(int(r.hidden), 1, gates*r.hidden, r.hidden)
	all, last := g.name("states"), g.name("state")
	g.model.Nodes = append(g.model.Nodes, onnxtest.Node{
		Op: op, Inputs: []string{x, w, u}, Outputs: []string{all, last}, Attrs: []onnxtest.Attr{attr("hidden_size", r.hidden)},
	})
	flat := g.node("Reshape", []string{last, g.ints(-1, r.hidden)})
	return g.finish(g.dense(flat, r.hidden, answer), answer, r.steps, r.features)
}

// loops writes layers of LSTMs, each a Scan over the steps, and a dense layer.
func (r recurrent) loops() []byte {
	g := newGraph()
	x, in, last := r.stepsFirst(g), r.features, ""
	first := g.constant("step", tensor.Int64, onnxtest.Int64s(0))
	for range loopLayers {
		row := g.node("Gather", []string{x, first}, attr("axis", int64(0)))
		start := g.node("MatMul", []string{row, g.zeros(in, r.hidden)}) // zeros, as many rows as the batch has
		h, c, states := g.name("h"), g.name("c"), g.name("states")
		g.model.Nodes = append(g.model.Nodes, onnxtest.Node{
			Op: "Scan", Inputs: []string{start, start, x}, Outputs: []string{h, c, states},
			Attrs: []onnxtest.Attr{attr("num_scan_inputs", int64(1)), attr("body", recurrent{r.steps, in, r.hidden}.step())},
		})
		x, in, last = states, r.hidden, h
	}
	return g.finish(g.dense(last, r.hidden, answer), answer, r.steps, r.features)
}

// step returns the graph of one step: h, c and x to the next h and c, and h once
// more for the list of all.
func (r recurrent) step() onnxtest.Model {
	g := newGraph()
	sum := g.node("Add", []string{g.dense("x", r.features, 4*r.hidden), g.dense("h", r.hidden, 4*r.hidden)})
	gates := []string{g.name("i"), g.name("o"), g.name("f"), g.name("c")}
	g.model.Nodes = append(g.model.Nodes, onnxtest.Node{Op: "Split", Inputs: []string{sum}, Outputs: gates, Attrs: []onnxtest.Attr{attr("axis", int64(1))}})
	i, o, f := g.node("Sigmoid", gates[:1]), g.node("Sigmoid", gates[1:2]), g.node("Sigmoid", gates[2:3])
	kept := g.node("Mul", []string{f, "c"})
	added := g.node("Mul", []string{i, g.node("Tanh", gates[3:])})
	c := g.node("Add", []string{kept, added})
	h := g.node("Mul", []string{o, g.node("Tanh", []string{c})})
	g.model.Nodes = append(g.model.Nodes, onnxtest.NodeOf("Identity", []string{h}, "h_next"), onnxtest.NodeOf("Identity", []string{c}, "c_next"),
		onnxtest.NodeOf("Identity", []string{h}, "h_listed"))
	state := func(name string) onnxtest.Tensor {
		return onnxtest.Tensor{Name: name, Type: tensor.FP32, Dims: []any{"N", r.hidden}}
	}
	x := onnxtest.Tensor{Name: "x", Type: tensor.FP32, Dims: []any{"N", r.features}}
	g.model.Inputs = []onnxtest.Tensor{state("h"), state("c"), x}
	g.model.Outputs = []onnxtest.Tensor{state("h_next"), state("c_next"), state("h_listed")}
	return g.model
}
