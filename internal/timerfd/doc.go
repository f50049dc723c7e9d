// Package timerfd is a timer of the system (Linux only), which the Go runtime's
// poller waits for. The Go runtime's own timers round a short sleep of an idle
// process up to a millisecond; this one is a hundred times less late. The
// scheduler and the load generator of perf use it.
package timerfd
