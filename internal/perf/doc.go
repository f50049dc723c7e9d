// Package perf measures a server: it makes load level by level, in windows,
// until three windows in a row agree, and says what the client saw and what the
// server says of the same time. The perf command stands on it.
//
// A run is a value: [Run] takes [Settings] and returns a [Result], which has all
// that was measured, can be written as JSON and read again without loss, and is
// what every report is made from. Nothing here prints while load is made but the
// progress that the caller asked for.
package perf
