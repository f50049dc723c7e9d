// Package result is what a run of perf has measured: levels, windows, histograms,
// the server's own statistics. A [Result] can be written as JSON and read again
// without loss. It decides nothing and prints nothing: judge decides by it, report,
// page and live tell it, and perf fills it in.
package result
