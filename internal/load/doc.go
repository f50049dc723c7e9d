// Package load makes load and measures what comes of it: a closed loop of
// callers, each of which sends a prepared request, waits for the whole answer
// and sends again, or an open loop, in which requests are due at a pace that the
// server does not slow down. The benchmarks under bench/ use it, and the perf
// command stands on it.
//
// It is built to cost little, so that a server on the same machine gets most of
// the machine: requests are encoded once, HTTP answers are read by hand from the
// bare connection, gRPC answers are not decoded, and each caller counts for
// itself until the run is over.
//
// A life: [Open] connects the callers and checks one answer of each, [Generator.Run]
// or [Generator.RunPaced] makes load for a while and may be called again (a warm-up is a run whose result
// is thrown away), [Generator.Close] ends the callers. A Generator makes one run
// at a time.
package load
