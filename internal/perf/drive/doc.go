// Package drive makes the load of one level: a closed loop of callers, an open
// loop that a schedule paces, or a load that grows, with or without sequences of
// requests. It says what became of each request and judges nothing. The perf
// package uses it for every level of a run.
//
// A life: [New], one of the Start methods, then Take on the callers as often as
// one likes, Stop, Wait.
package drive
