package main

import (
	"fmt"
	"strings"

	"shoal/bench/internal/report"
)

// The most that figures may be.
const (
	maxAnswerMS    = 50.0
	maxPollPercent = 1.0
	maxRequest     = 1.05
)

// loading is what a server took to load the models of 1 MB.
type loading struct {
	Server     string  `json:"server"`
	Command    string  `json:"command"`
	ReadyMS    float64 `json:"ready_ms"`
	RSSMB      float64 `json:"rss_mb"`
	PerModelMB float64 `json:"per_model_mb"` // beyond the first model
}

// answers are the times of requests that were sent one after another.
type answers struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	KB    float64 `json:"kb"` // of an answer
}

// request is the server's CPU time for an inference request.
type request struct {
	OneUS  float64 `json:"one_us"`  // beside no other model
	ManyUS float64 `json:"many_us"` // beside many
	Ratio  float64 `json:"ratio"`   // median of the rounds
}

// poll is what a look at the unchanged repository costs.
type poll struct {
	OnceMS       float64 `json:"once_ms"`       // of CPU time
	SharePercent float64 `json:"share_percent"` // of a core, with the default of one in 15 s
}

// results is what goes into repository.json.
type results struct {
	Facts   report.Facts `json:"facts"`
	Loaded  int          `json:"loaded"`
	Idle    int          `json:"idle"`
	Rounds  int          `json:"rounds"`
	Command string       `json:"command"` // of the server with the idle models
	Loads   []loading    `json:"loads"`
	Index   answers      `json:"index"`
	Metrics answers      `json:"metrics"`
	Poll    poll         `json:"poll"`
	Request request      `json:"request"`
}

// A floor is a figure with the most that it may be; 0 is no bound.
type floor struct {
	what, unit string
	got, most  float64
}

func (r results) floors() []floor {
	list := []floor{}
	for _, l := range r.Loads {
		list = append(list, floor{fmt.Sprintf("%s: %d models of 1 MB ready", l.Server, r.Loaded), "ms", l.ReadyMS, 0}, floor{l.Server + ": memory of each", "MB", l.PerModelMB, 0})
	}
	return append(list,
		floor{fmt.Sprintf("index of %d models, p99", r.Idle), "ms", r.Index.P99MS, maxAnswerMS},
		floor{fmt.Sprintf("/metrics of %d models, p99", r.Idle), "ms", r.Metrics.P99MS, maxAnswerMS},
		floor{"poll of them unchanged", "% of a core", r.Poll.SharePercent, maxPollPercent},
		floor{"request to one of them / to one alone", "CPU", r.Request.Ratio, maxRequest},
	)
}

// missed returns the floors that were missed, in words.
func (r results) missed() []string {
	var words []string
	for _, f := range r.floors() {
		if f.most > 0 && f.got > f.most {
			words = append(words, fmt.Sprintf("%s: %.2f %s (at most %.2f)", f.what, f.got, f.unit, f.most))
		}
	}
	return words
}

func (r results) table() string {
	cells := [][]string{{"figure", "value", "unit", "floor"}}
	for _, f := range r.floors() {
		verdict := ""
		if f.most > 0 {
			verdict = fmt.Sprintf("%.2f pass", f.most)
			if f.got > f.most {
				verdict = fmt.Sprintf("%.2f MISSED", f.most)
			}
		}
		cells = append(cells, []string{f.what, fmt.Sprintf("%.2f", f.got), f.unit, verdict})
	}
	return report.Table(cells)
}

// page returns the whole report as Markdown.
func (r results) page() string {
	var b strings.Builder
	b.WriteString("# Many models\n\n")
	b.WriteString(r.Facts.Markdown())
	for _, l := range r.Loads {
		fmt.Fprintf(&b, "- %s, %d models: `%s`\n", l.Server, r.Loaded, l.Command)
	}
	fmt.Fprintf(&b, "- %d idle models: `%s`\n", r.Idle, r.Command)
	fmt.Fprintf(&b, "- index: p50 %.1f ms, %.0f KB; /metrics: p50 %.1f ms, %.0f KB; one poll: %.1f ms of CPU time\n",
		r.Index.P50MS, r.Index.KB, r.Metrics.P50MS, r.Metrics.KB, r.Poll.OnceMS)
	fmt.Fprintf(&b, "- a request: %.1f us of the server's CPU time alone, %.1f us beside the others; the ratio is the median of %d rounds\n",
		r.Request.OneUS, r.Request.ManyUS, r.Rounds)
	b.WriteString("\nWritten by `make bench-repository`; bench/README.md says how to read it.\n\n")
	b.WriteString(r.table())
	return b.String()
}
