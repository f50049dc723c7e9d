// Package report prints a run of perf as text: perf_analyzer's report, CSV, a
// latency spectrum, a comparison, the profile export. The perf command uses it.
// Charts are in perf/page, the live view is in perf/live.
package report
