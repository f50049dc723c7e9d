// Package result is what a run of perf has measured: levels, windows,
// histograms, the server's own statistics. A [Result] can be written as JSON
// and read again without loss. It decides nothing and prints nothing: perf
// fills it in, judge evaluates it, and report, page and live present it.
package result
