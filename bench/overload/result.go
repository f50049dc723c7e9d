package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/report"
	"shoal/internal/load"
)

// The floors.
const (
	leastGoodput = 0.9 // of the capacity
	mostRefusal  = 5.0 // ms, p99: until a refusal, or from a timeout to its refusal
	mostGrowth   = 1.1 // of the memory
	mostFirst    = 2.0 // of the normal p99: the first request after the load
	mostLateness = 5.0 // ms, p99: of the generator; beyond it the load was not what it should be
)

// times sum up a histogram, in milliseconds.
type times struct {
	Count int64   `json:"count"`
	Min   float64 `json:"min_ms"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func timesOf(h *load.Histogram) times {
	return times{h.Count(), millis(h.Min()), millis(h.Quantile(0.5)), millis(h.Quantile(0.99)), millis(h.Max())}
}

// An outcome is what a row came to. Rates are requests a second.
type outcome struct {
	Row            string           `json:"row"`
	About          string           `json:"about"`
	Timeout        float64          `json:"timeout_ms"` // of requests in the queue, where that is what refuses them
	CapacityBefore float64          `json:"capacity_before"`
	CapacityAfter  float64          `json:"capacity_after"`
	Capacity       float64          `json:"capacity"` // the mean of the two
	Offered        float64          `json:"offered"`
	Goodput        float64          `json:"goodput"`
	Shares         []float64        `json:"shares"`    // of the capacity, in each round, the least first
	Good           times            `json:"good"`      // from when they were due
	Refused        times            `json:"refused"`   // from when they were sent
	SentLate       times            `json:"sent_late"` // by the generator
	Lost           map[string]int64 `json:"lost"`      // neither answered well nor refused, by kind
	Memory         memory           `json:"memory"`
	ServerCores    float64          `json:"server_cores"` // that the overload kept busy
	ClientCores    float64          `json:"client_cores"`
	Normal         times            `json:"normal"` // of a lone caller, before
	First          float64          `json:"first_ms"`
	After          times            `json:"after"` // of a lone caller, after
}

// missed returns the floors that the row missed, in words.
func (o outcome) missed() []string {
	var words []string
	miss := func(missed bool, format string, args ...any) {
		if missed {
			words = append(words, o.Row+": "+fmt.Sprintf(format, args...))
		}
	}
	miss(o.share() < leastGoodput, "goodput is %.0f%% of the capacity (at least %.0f%%)", 100*o.share(), 100*leastGoodput)
	miss(o.Refused.Count == 0, "nothing was refused: this was no overload")
	miss(o.late() > mostRefusal, "refusals come %.2f ms late at p99 (at most %.0f)", o.late(), mostRefusal)
	miss(o.Refused.Min < o.Timeout, "a request was refused after %.2f ms (not before %.0f)", o.Refused.Min, o.Timeout)
	miss(len(o.Lost) > 0, "requests were lost: %v", o.Lost)
	miss(o.Memory.Late > mostGrowth*o.Memory.Early, "memory grew from %.0f to %.0f MB (at most %.0f%%)", o.Memory.Early, o.Memory.Late, 100*(mostGrowth-1))
	miss(o.First > mostFirst*o.Normal.P99, "the first request afterwards took %.2f ms (at most %.0f times the normal p99 of %.2f)", o.First, mostFirst, o.Normal.P99)
	miss(o.SentLate.P99 > mostLateness, "the generator was %.2f ms late at p99 (at most %.0f): the machine is too busy to tell", o.SentLate.P99, mostLateness)
	return words
}

// share returns which part of the capacity the goodput is.
func (o outcome) share() float64 { return o.Goodput / o.Capacity }

// late returns how long after they should have been refused requests were, at
// the 99th percentile.
func (o outcome) late() float64 { return max(0, o.Refused.P99-o.Timeout) }

// results is what goes into overload.json.
type results struct {
	Facts    report.Facts `json:"facts"`
	Server   string       `json:"server"`
	Duration string       `json:"duration"`
	Capacity string       `json:"capacity_duration"`
	Rows     []outcome    `json:"rows"`
}

func (r results) missed() []string {
	var words []string
	for _, o := range r.Rows {
		words = append(words, o.missed()...)
	}
	return words
}

// table returns the rows as a table that is Markdown and reads well as text.
func (r results) table() string {
	cells := [][]string{{
		"row", "", "capacity/s", "offered/s", "goodput/s", "of capacity", "good p50 ms", "p99", "refused/s", "refused p50 ms", "p99", "max",
		"RSS MB", "cores server", "client", "normal p50 ms", "p99", "first after ms", "sent late p99 ms",
	}}
	for _, o := range r.Rows {
		verdict := "pass"
		if len(o.missed()) > 0 {
			verdict = "MISSED"
		}
		refused := float64(o.Refused.Count) / float64(o.Refused.Count+o.Good.Count) * o.Offered
		cells = append(cells, []string{
			o.Row, verdict, fmt.Sprintf("%.0f", o.Capacity), fmt.Sprintf("%.0f", o.Offered), fmt.Sprintf("%.0f", o.Goodput), shares(o),
			fmt.Sprintf("%.1f", o.Good.P50), fmt.Sprintf("%.1f", o.Good.P99), fmt.Sprintf("%.0f", refused),
			fmt.Sprintf("%.2f", o.Refused.P50), fmt.Sprintf("%.2f", o.Refused.P99), fmt.Sprintf("%.2f", o.Refused.Max),
			fmt.Sprintf("%.0f to %.0f", o.Memory.Early, o.Memory.Late), fmt.Sprintf("%.2f", o.ServerCores), fmt.Sprintf("%.2f", o.ClientCores),
			fmt.Sprintf("%.2f", o.Normal.P50), fmt.Sprintf("%.2f", o.Normal.P99), fmt.Sprintf("%.2f", o.First), fmt.Sprintf("%.2f", o.SentLate.P99),
		})
	}
	return report.Table(cells)
}

// shares prints the part of the capacity, with the range of the rounds.
func shares(o outcome) string {
	text := fmt.Sprintf("%.0f%%", 100*o.share())
	if n := len(o.Shares); n > 1 {
		text += fmt.Sprintf(" (%.0f-%.0f)", 100*o.Shares[0], 100*o.Shares[n-1])
	}
	return text
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Overload\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- %s of overload a row, %s of load before and after to find the capacity\n- server: `%s`\n", r.Duration, r.Capacity, r.Server)
	b.WriteString("\nWritten by `make bench-overload`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.table())
	b.WriteString("\n")
	for _, o := range r.Rows {
		fmt.Fprintf(&b, "- %s: %s\n", o.Row, o.About)
	}
	for _, words := range r.missed() {
		fmt.Fprintf(&b, "- MISSED %s\n", words)
	}
	return b.String()
}
