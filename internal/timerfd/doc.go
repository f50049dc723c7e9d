// Package timerfd has a timer of the system (Linux only) that is waited for
// through the runtime's poller. A timer of the runtime rounds a short sleep of an
// idle process up to a millisecond; this one is a hundred times less late. The
// scheduler and the load generator of perf use it.
package timerfd
