// Package report tells a run of perf in text: the report as perf_analyzer prints
// it, CSV, a latency spectrum, a comparison, the profile export. The perf command
// uses it. Charts are in perf/page, what is shown during a run in perf/live.
package report
