// Package perf measures a server: it makes load level by level, in windows, until
// three windows in a row agree. The perf command uses it.
//
// A run is a value: [Open] takes [Settings] and prepares the requests, [Session.Run]
// returns a result.Result. The parts are packages of their own: drive makes the
// load, judge decides what the windows say, result is what was measured, and report,
// page and live tell it. What is here connects them: it asks the server about the
// model, encodes the requests, and turns what callers saw into windows.
package perf
