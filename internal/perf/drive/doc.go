// Package drive generates the load of one level: a closed loop of callers, an
// open loop with a schedule, or a load that grows, with or without sequences of
// requests. It records the outcome of each request and does not judge it. The
// perf package uses it for every level of a run.
//
// Call [New], one of the Start methods, then Take on the callers as often as
// needed, Stop, Wait.
package drive
