// Package peer starts the servers that are compared, Shoal and the real Triton,
// each on loopback with free ports of its own and with models that do the same:
// Shoal through ONNX Runtime, Triton through its Python backend, the only one
// that its package on PyPI brings.
package peer
