//go:build !linux

package perf

// cpuModel is not known on this system.
func cpuModel() string { return "" }
