// Package load generates load and measures the answers. In a closed loop each
// caller sends a prepared request, waits for the whole answer and sends again.
// In an open loop requests are due at fixed times, whatever the server does.
// The benchmarks under bench/ and the perf command use it.
//
// It uses little CPU, so that a server on the same machine gets most of it:
// requests are encoded once, HTTP answers are parsed directly from the
// connection, gRPC answers are not decoded, and each caller has its own
// counters until the run is over.
//
// [Open] connects the callers and checks one answer of each. [Generator.Run] or
// [Generator.RunPaced] generates load for a while and may be called again (a
// warm-up is a run whose result is discarded). [Generator.Close] ends the
// callers. A Generator makes one run at a time.
package load
