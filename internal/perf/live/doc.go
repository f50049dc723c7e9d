// Package live shows a run of perf while it goes: a status line under the
// report, or a screen of charts. The perf command uses it.
//
// A View is started before the run and closed after it. The run calls its
// observer ten times a second; the observer only stores what it gets, so that
// watching does not change the measurement. The display is a pure function of
// the stored state.
package live
