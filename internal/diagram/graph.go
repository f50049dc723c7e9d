// Package diagram draws a model with the models that it is made of: as SVG, as DOT
// for Graphviz, or as Mermaid for Markdown. The graph command is built on it.
// Everything in it is a pure function.
package diagram

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"shoal/internal/model/modelpb"
)

// A Graph is a model and its steps. A model that is no ensemble has one step,
// itself.
type Graph struct {
	Name     string
	Requests uint64        // that the figures are of; 0 when there are none
	Total    time.Duration // the mean time of a request in the server
	nodes    []node
	edges    []edge
}

// A node is an input, a step or an output.
type node struct {
	kind  kind
	name  string
	notes []string // lines below the name
	share float64  // of the time; 0 when it is not known
}

type kind int

const (
	input kind = iota
	step
	output
)

// An edge says which tensors go from one node to another.
type edge struct {
	from, to int
	labels   []string
}

// Times is what a model did while it was watched, on average.
type Times struct {
	Requests       uint64
	Total          time.Duration // in the server
	Queue, Compute time.Duration
}

// New returns the graph of a model. Part returns the configuration of a model
// that it calls and times what a model did; both may return nil.
func New(cfg *modelpb.ModelConfig, part func(name string, version int64) *modelpb.ModelConfig, times func(name string, version int64) *Times) *Graph {
	g := &Graph{Name: cfg.GetName()}
	if t := times(g.Name, -1); t != nil {
		g.Requests, g.Total = t.Requests, t.Total
	}
	steps := cfg.GetEnsembleScheduling().GetStep()
	if len(steps) == 0 {
		steps = []*modelpb.ModelEnsembling_Step{itself(cfg)}
		part = func(string, int64) *modelpb.ModelConfig { return cfg }
	}
	types := make(map[string]string) // of tensors, as far as they are known
	makers := make(map[string]int)   // of tensors: the node
	for _, in := range cfg.GetInput() {
		types[in.Name] = typeOf(in.DataType, in.Dims, cfg)
		makers[in.Name] = len(g.nodes)
		g.nodes = append(g.nodes, node{kind: input, name: in.Name})
	}
	first := len(g.nodes)
	for _, s := range steps {
		c := part(s.ModelName, s.ModelVersion)
		for _, key := range sorted(s.OutputMap) {
			tensor := s.OutputMap[key]
			makers[tensor] = len(g.nodes)
			if i := slices.IndexFunc(c.GetOutput(), func(o *modelpb.ModelOutput) bool { return o.Name == key }); i >= 0 {
				types[tensor] = typeOf(c.Output[i].DataType, c.Output[i].Dims, c)
			}
		}
		g.nodes = append(g.nodes, g.step(s, c, times(s.ModelName, s.ModelVersion)))
	}
	for i, s := range steps {
		for _, key := range sorted(s.InputMap) {
			g.connect(makers, types, s.InputMap[key], first+i)
		}
	}
	for _, out := range cfg.GetOutput() {
		types[out.Name] = typeOf(out.DataType, out.Dims, cfg)
		g.nodes = append(g.nodes, node{kind: output, name: out.Name})
		g.connect(makers, types, out.Name, len(g.nodes)-1)
	}
	return g
}

// itself is a step that calls the model that it is in.
func itself(cfg *modelpb.ModelConfig) *modelpb.ModelEnsembling_Step {
	s := &modelpb.ModelEnsembling_Step{ModelName: cfg.GetName(), ModelVersion: -1, InputMap: map[string]string{}, OutputMap: map[string]string{}}
	for _, in := range cfg.GetInput() {
		s.InputMap[in.Name] = in.Name
	}
	for _, out := range cfg.GetOutput() {
		s.OutputMap[out.Name] = out.Name
	}
	return s
}

// step returns the node of a step.
func (g *Graph) step(s *modelpb.ModelEnsembling_Step, c *modelpb.ModelConfig, t *Times) node {
	n := node{kind: step, name: s.ModelName}
	var words []string
	switch {
	case c == nil:
	case c.GetEnsembleScheduling() != nil:
		words = append(words, "ensemble")
	case c.GetBackend() != "":
		words = append(words, c.GetBackend())
	default:
		words = append(words, c.GetPlatform())
	}
	if s.ModelVersion > 0 {
		words = append(words, fmt.Sprintf("version %d", s.ModelVersion))
	}
	if c.GetMaxBatchSize() > 0 {
		words = append(words, fmt.Sprintf("batch %d", c.GetMaxBatchSize()))
	}
	if c.GetModelTransactionPolicy().GetDecoupled() {
		words = append(words, "decoupled")
	}
	if len(words) > 0 {
		n.notes = append(n.notes, strings.Join(words, ", "))
	}
	if t != nil && t.Requests > 0 {
		n.notes = append(n.notes, fmt.Sprintf("queue %s, compute %s", short(t.Queue), short(t.Compute)))
		if g.Total > 0 {
			n.share = float64(t.Queue+t.Compute) / float64(g.Total)
			n.notes = append(n.notes, fmt.Sprintf("%.0f %% of the time", 100*n.share))
		}
	}
	return n
}

// connect adds a tensor to the edge from the node that makes it.
func (g *Graph) connect(makers map[string]int, types map[string]string, tensor string, to int) {
	from, ok := makers[tensor]
	if !ok {
		return // such an ensemble does not load
	}
	label := strings.TrimSpace(tensor + " " + types[tensor])
	for i := range g.edges {
		if e := &g.edges[i]; e.from == from && e.to == to {
			e.labels = append(e.labels, label)
			return
		}
	}
	g.edges = append(g.edges, edge{from, to, []string{label}})
}

// typeOf returns a tensor's type and shape; N is the batch dimension.
func typeOf(t modelpb.DataType, dims []int64, c *modelpb.ModelConfig) string {
	var list []string
	if c.GetMaxBatchSize() > 0 {
		list = append(list, "N")
	}
	for _, d := range dims {
		if d < 0 {
			list = append(list, "?")
		} else {
			list = append(list, fmt.Sprint(d))
		}
	}
	return strings.TrimPrefix(t.String(), "TYPE_") + "[" + strings.Join(list, ",") + "]"
}

// caption is one line about the figures.
func (g *Graph) caption() string {
	if g.Requests == 0 {
		return ""
	}
	return fmt.Sprintf("%d requests, %s each in the server", g.Requests, short(g.Total))
}

// short writes a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", 1e3*d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", 1e3*d.Seconds())
	}
	return fmt.Sprintf("%.0f us", 1e6*d.Seconds())
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
