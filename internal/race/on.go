//go:build race

// Package race tells tests whether the race detector is on. It empties pools
// and slows code down, so tests that count allocations or time skip themselves.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
