//go:build race

package onnx

// underRace says that the race detector is on, which slows Go code and not the
// library, and allocates.
const underRace = true
