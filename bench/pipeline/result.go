package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

// The bounds. Times are in microseconds.
const (
	maxStepCPU  = 5.0
	maxCallP50  = 60.0
	maxCallCPU  = 0.35 // of Triton's
	minCrops    = 6.0
	maxBigStep  = 1.0 // copies of the tensor
	shoalServer = "shoal"
	peerServer  = "triton"
)

// A chain is what all rounds say of one kind.
type chain struct {
	kind  kind
	Title string `json:"title"`
	// Runs has, for each server, the samples of each round by the chain's length.
	Runs map[string][][]measure.Sample `json:"runs"`
}

func newChain(k kind, servers []*peer.Server) *chain {
	c := &chain{kind: k, Title: k.title, Runs: make(map[string][][]measure.Sample)}
	for _, s := range servers {
		c.Runs[s.Name] = nil
	}
	return c
}

// added is what one more model costs, in microseconds.
type added struct {
	P50   float64 `json:"p50_us"`
	CPU   float64 `json:"cpu_us"`   // of all processes
	Infer float64 `json:"infer_us"` // in the model itself, by the server's statistics
}

// addedIn returns what a model costs in one round: the difference between the
// longest and the shortest chain.
func addedIn(run []measure.Sample) added {
	first, last := run[0], run[len(run)-1]
	n := float64(lengths[len(lengths)-1] - lengths[0])
	return added{
		P50:   (last.P50 - first.P50) / n,
		CPU:   (last.CPU + last.WorkerCPU - first.CPU - first.WorkerCPU) / n,
		Infer: last.Infer,
	}
}

// figure returns the median over the rounds of one server.
func (c *chain) figure(server string, f func(added) float64) float64 {
	var all []float64
	for _, run := range c.Runs[server] {
		all = append(all, f(addedIn(run)))
	}
	return report.Median(all)
}

// ratio returns the median of the rounds' ratios of Shoal to Triton; 0 without
// Triton.
func (c *chain) ratio(f func(added) float64) float64 {
	var all []float64
	for i, run := range c.Runs[peerServer] {
		all = append(all, f(addedIn(c.Runs[shoalServer][i]))/f(addedIn(run)))
	}
	return report.Median(all)
}

func p50(a added) float64 { return a.P50 }
func cpu(a added) float64 { return a.CPU }

// server is the CPU time without that of the model.
func server(a added) float64 { return a.CPU - a.Infer }

// results is what goes into pipeline.json.
type results struct {
	report.Facts
	Commands []string                    `json:"commands"`
	Rounds   int                         `json:"rounds"`
	CopyUS   float64                     `json:"copy_us"` // of 602,112 bytes
	Chains   []*chain                    `json:"chains"`
	Crops    map[string][]measure.Sample `json:"crops"`
}

// A floor is a figure with a bound.
type floor struct {
	what  string
	got   float64
	bound float64
	least bool // the bound is the least that it may be
}

func (f floor) holds() bool { return (f.got >= f.bound) == f.least || f.got == f.bound }

func (r results) floors() (list []floor) {
	for _, c := range r.Chains {
		switch c.kind.name {
		case "chain":
			list = append(list, floor{what: "an added ONNX step of 64 bytes: us of server CPU", got: c.figure(shoalServer, server), bound: maxStepCPU})
		case "chain_big":
			list = append(list, floor{what: "an added ONNX step of 602 KB: server CPU in copies of the tensor", got: c.figure(shoalServer, server) / r.CopyUS, bound: maxBigStep})
		case "bls":
			list = append(list, floor{what: "a BLS call of an ONNX model: us at p50", got: c.figure(shoalServer, p50), bound: maxCallP50})
		}
		if ratio := c.ratio(cpu); ratio > 0 && c.kind.calls && c.kind.width == smallWidth {
			list = append(list, floor{what: c.Title + ": CPU of Triton's", got: ratio, bound: maxCallCPU})
		}
	}
	if samples := r.Crops[shoalServer]; samples != nil {
		list = append(list, floor{what: "8 crops, 4 callers: mean batch", got: measure.Medians(samples).MeanBatch, bound: minCrops, least: true})
	}
	return list
}

// missed returns the floors that were missed, in words.
func (r results) missed() (words []string) {
	for _, f := range r.floors() {
		if !f.holds() {
			words = append(words, fmt.Sprintf("%s: %.2f (bound %.2f)", f.what, f.got, f.bound))
		}
	}
	return words
}

func (r results) table() string {
	steps := [][]string{{"each model more", "server", "p50", "CPU, all processes", "of it in the model", "p50 of Triton's", "CPU of Triton's"}}
	whole := [][]string{{"requests", "server", "models", "p50", "CPU of the server", "CPU of its workers"}}
	for _, c := range r.Chains {
		for _, name := range []string{shoalServer, peerServer} {
			runs := c.Runs[name]
			if runs == nil {
				continue
			}
			us := func(f func(added) float64) string { return fmt.Sprintf("%.1f us", c.figure(name, f)) }
			row := []string{c.Title, name, us(p50), us(cpu), us(func(a added) float64 { return a.Infer }), "", ""}
			if name == shoalServer && c.Runs[peerServer] != nil {
				row[5], row[6] = fmt.Sprintf("%.2f", c.ratio(p50)), fmt.Sprintf("%.2f", c.ratio(cpu))
			}
			steps = append(steps, row)
			for i, n := range lengths {
				var samples []measure.Sample
				for _, run := range runs {
					samples = append(samples, run[i])
				}
				m := measure.Medians(samples)
				whole = append(whole, []string{
					c.Title, name, fmt.Sprint(n), fmt.Sprintf("%.0f us", m.P50), fmt.Sprintf("%.1f us", m.CPU), fmt.Sprintf("%.1f us", m.WorkerCPU),
				})
			}
		}
	}
	text := report.Table(steps) + "\n" + report.Table(whole)
	if r.Crops != nil {
		rows := [][]string{{"8 crops, 4 callers", "mean batch", "requests/s", "p50"}}
		for _, name := range []string{shoalServer, peerServer} {
			if samples := r.Crops[name]; samples != nil {
				m := measure.Medians(samples)
				rows = append(rows, []string{name, fmt.Sprintf("%.1f", m.MeanBatch), fmt.Sprintf("%.0f", m.Throughput), fmt.Sprintf("%.0f us", m.P50)})
			}
		}
		text += "\n" + report.Table(rows)
	}
	floors := [][]string{{"floor", "got", "bound", ""}}
	for _, f := range r.floors() {
		verdict := "pass"
		if !f.holds() {
			verdict = "MISSED"
		}
		floors = append(floors, []string{f.what, fmt.Sprintf("%.2f", f.got), fmt.Sprintf("%.2f", f.bound), verdict})
	}
	return text + "\n" + report.Table(floors)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Ensembles and calls between models\n\nWritten by `make bench-pipeline`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.Markdown())
	for _, c := range r.Commands {
		fmt.Fprintf(&b, "- `%s`\n", c)
	}
	fmt.Fprintf(&b, "- %d rounds, one caller over HTTP; one copy of 602 KB takes %.0f us\n\n", r.Rounds, r.CopyUS)
	b.WriteString(r.table())
	return b.String()
}
