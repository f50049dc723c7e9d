//go:build race

// Package race tells tests whether the race detector is on. It makes pools
// forget and code slow, so tests that count allocations or time step aside.
package race

// Enabled says that the race detector is on.
const Enabled = true
