package main

import (
	"fmt"
	"time"

	"shoal/bench/internal/report"
)

// The floors.
const (
	// mostGoodLatency is generous: the machines are shared.
	mostGoodLatency = 250 * time.Millisecond
	// mostRatio is how much more CPU than grpc-go's server a flood may take, unless it
	// takes next to nothing: a byte that is only received costs a nanosecond or so.
	mostRatio = 1.5
	freeBurst = 5 // ns to a byte
	// mostGrowth is how much more than the budget the server may grow by, ...
	mostGrowth = 1.1
	// ... besides what a connection takes by itself: a goroutine or two, its
	// read and write buffers and its place in tables, ...
	perConn = 48 << 10
	// ... and what Go's runtime takes to serve more than before.
	ofRuntime = 24 << 20
	// moreFiles is how many more files may be open than before the attack: idle
	// connections of clients that come and go.
	moreFiles = 4
	// Go sets memory aside in arenas, and lets the heap be twice what is live.
	mostClaimed = 2
	ofArenas    = 128 << 20
)

// A figure is what came of one class by itself.
type figure struct {
	Class   string `json:"class"`
	About   string `json:"about"`
	Conns   int    `json:"conns"`
	Made    int64  `json:"connections_made"`
	Closed  int64  `json:"connections_closed"` // by the server
	Bytes   int64  `json:"bytes"`
	Growth  int64  `json:"rss_growth"`
	Allowed int64  `json:"rss_growth_allowed"`
	// Claimed is how much more memory it set aside at the end than before, touched
	// or not.
	Claimed        int64 `json:"claimed_growth"`
	ClaimedAllowed int64 `json:"claimed_growth_allowed"`
	// CPU is nanoseconds to a byte of the attack, less what the good clients take.
	CPU float64 `json:"cpu_ns_per_byte"`
	// Those of the bursts of a flood: of this server, grpc-go's, and the median of
	// the rounds' own ratios. Zero when the class is no flood.
	Burst     float64 `json:"burst_ns_per_byte"`
	Reference float64 `json:"reference_ns_per_byte"`
	Ratio     float64 `json:"ratio"`
	Refused   int     `json:"refused"` // by the server's own count
	// Open files before the attack and after it, when the clients have gone.
	Files      int     `json:"files"`
	FilesAfter int     `json:"files_after"`
	Before     latency `json:"good_before"`
	Good       latency `json:"good"`
	Failed     int     `json:"good_failed"`
	Failure    string  `json:"good_failure"` // the first few, in words
}

// latency sums up the good requests, in milliseconds.
type latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// missed returns the floors that the class missed, in words, with the most that
// good requests may take.
func (f figure) missed(latency time.Duration) []string {
	var words []string
	miss := func(missed bool, format string, args ...any) {
		if missed {
			words = append(words, f.Class+": "+fmt.Sprintf(format, args...))
		}
	}
	miss(f.Growth > f.Allowed, "memory grew by %.1f MB (at most %.1f)", mb(f.Growth), mb(f.Allowed))
	miss(f.Claimed > f.ClaimedAllowed, "the memory set aside grew by %.1f MB (at most %.1f)", mb(f.Claimed), mb(f.ClaimedAllowed))
	miss(f.dear(), "a byte takes %.2f times the CPU of grpc-go's server: %.1f ns (at most %.1f times)", f.Ratio, f.Burst, mostRatio)
	miss(f.Good.Count == 0, "no good request")
	miss(f.Failed > 0, "%d of %d good requests failed, such as: %s", f.Failed, f.Good.Count, f.Failure)
	miss(f.Good.P99 > millis(latency), "good requests take %.0f ms at p99 (at most %.0f)", f.Good.P99, millis(latency))
	miss(f.FilesAfter > f.Files+moreFiles, "%d files are open afterwards, %d before", f.FilesAfter, f.Files)
	miss(f.Made == 0 && f.Bytes == 0, "nothing was sent: this was no attack")
	return words
}

// dear says whether a burst costs more than it may.
func (f figure) dear() bool { return f.Ratio > mostRatio && f.Burst > freeBurst }

// table returns the figures as a table that is Markdown and reads well as text.
func table(figures []figure) string {
	cells := [][]string{{
		"class", "", "connections", "closed", "attack MB", "RSS growth MB", "allowed", "set aside MB", "CPU ns/byte", "burst ns/byte", "grpc-go", "ratio",
		"refused", "files", "good", "failed", "p50 ms", "p99", "p99 without",
	}}
	for _, f := range figures {
		verdict := "pass"
		if len(f.missed(mostGoodLatency)) > 0 {
			verdict = "MISSED"
		}
		burst, reference, ratio := "", "", ""
		if f.Ratio > 0 {
			burst, reference, ratio = fmt.Sprintf("%.1f", f.Burst), fmt.Sprintf("%.1f", f.Reference), fmt.Sprintf("%.2f", f.Ratio)
		}
		cells = append(cells, []string{
			f.Class, verdict, fmt.Sprint(f.Made), fmt.Sprint(f.Closed), fmt.Sprintf("%.2f", mb(f.Bytes)),
			fmt.Sprintf("%.1f", mb(f.Growth)), fmt.Sprintf("%.0f", mb(f.Allowed)), fmt.Sprintf("%.0f", mb(f.Claimed)), f.cpu(), burst, reference, ratio,
			fmt.Sprint(f.Refused), fmt.Sprintf("%d to %d", f.Files, f.FilesAfter), fmt.Sprint(f.Good.Count), fmt.Sprint(f.Failed),
			fmt.Sprintf("%.2f", f.Good.P50), fmt.Sprintf("%.1f", f.Good.P99), fmt.Sprintf("%.1f", f.Before.P99),
		})
	}
	return report.Table(cells)
}

// cpu prints the CPU time of a byte, where there are enough of them.
func (f figure) cpu() string {
	if f.Bytes < 1<<20 {
		return ""
	}
	return fmt.Sprintf("%.1f", f.CPU)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
