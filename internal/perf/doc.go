// Package perf measures a server: it generates load level by level, in windows,
// until three windows in a row agree. The perf command uses it.
//
// [Open] takes [Settings] and prepares the requests; [Session.Run] returns a
// result.Result. The parts are separate packages: drive generates the load,
// judge evaluates the windows, result is what was measured, and report, page
// and live present it. This package connects them: it asks the server about the
// model, encodes the requests, and turns the callers' records into windows.
package perf
