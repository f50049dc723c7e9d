package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

// floors are the most that a figure may be.
type floors struct{ readyMS, rssMB, binaryMB float64 }

var shoalFloors = floors{readyMS: 150, rssMB: 60, binaryMB: 40}

// once is what one start took. MB are millions of bytes.
type once struct {
	ReadyMS      float64 `json:"ready_ms"`
	RSSMB        float64 `json:"rss_mb"`
	WorkersRSSMB float64 `json:"workers_rss_mb"` // of the processes it started
}

// A result is what all starts of a server came to.
type result struct {
	Name     string  `json:"name"`
	Command  string  `json:"command"`
	BinaryMB float64 `json:"binary_mb"`
	Median   once    `json:"median"`
	Starts   []once  `json:"starts"`

	command peer.Command
	floors  *floors // nil when nothing is asked of it
}

// results is what goes into size.json.
type results struct {
	Facts  report.Facts `json:"facts"`
	Rounds int          `json:"rounds"`
	Cases  []result     `json:"cases"`
}

// summarise sets the medians.
func (r *result) summarise() {
	var ready, rss, workers []float64
	for _, s := range r.Starts {
		ready = append(ready, s.ReadyMS)
		rss = append(rss, s.RSSMB)
		workers = append(workers, s.WorkersRSSMB)
	}
	r.Median = once{ReadyMS: report.Median(ready), RSSMB: report.Median(rss), WorkersRSSMB: report.Median(workers)}
}

// missed returns the floors that were missed, in words.
func (r results) missed() []string {
	var words []string
	for _, c := range r.Cases {
		if c.floors == nil {
			continue
		}
		for _, f := range []struct {
			what, unit string
			got, floor float64
		}{
			{"exec to ready", "ms", c.Median.ReadyMS, c.floors.readyMS},
			{"idle RSS", "MB", c.Median.RSSMB, c.floors.rssMB},
			{"binary", "MB", c.BinaryMB, c.floors.binaryMB},
		} {
			if f.got > f.floor {
				words = append(words, fmt.Sprintf("%s %.1f %s (at most %.0f)", f.what, f.got, f.unit, f.floor))
			}
		}
	}
	return words
}

func (r results) table() string {
	cells := [][]string{{"server", "exec to ready ms", "floor", "idle RSS MB", "floor", "(workers MB)", "binary MB", "floor"}}
	for _, c := range r.Cases {
		ready, rss, binary := "", "", ""
		if c.floors != nil {
			ready = verdict(c.Median.ReadyMS, c.floors.readyMS)
			rss = verdict(c.Median.RSSMB, c.floors.rssMB)
			binary = verdict(c.BinaryMB, c.floors.binaryMB)
		}
		cells = append(cells, []string{
			c.Name, fmt.Sprintf("%.0f", c.Median.ReadyMS), ready, fmt.Sprintf("%.1f", c.Median.RSSMB), rss,
			fmt.Sprintf("(%.1f)", c.Median.WorkersRSSMB), fmt.Sprintf("%.1f", c.BinaryMB), binary,
		})
	}
	return report.Table(cells)
}

func verdict(got, floor float64) string {
	if got > floor {
		return fmt.Sprintf("%.0f MISSED", floor)
	}
	return fmt.Sprintf("%.0f pass", floor)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# How small Shoal is, beside Triton\n\n")
	b.WriteString(r.Facts.Markdown())
	fmt.Fprintf(&b, "- medians of %d starts, the servers in turn\n", r.Rounds)
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "- %s: `%s`\n", c.Name, c.Command)
	}
	b.WriteString("\nWritten by `make bench-size`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.table())
	return b.String()
}
