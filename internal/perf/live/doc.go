// Package live shows how a run of perf goes while it goes: a line that moves under
// the report, or a screen of charts. The perf command uses it.
//
// A View is started before the run and closed after it; its observer is called by
// the run ten times a second and only notes what it is told, so that watching does
// not change what is watched. What is shown is a pure function of what was noted.
package live
