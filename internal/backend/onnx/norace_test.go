//go:build !race

package onnx

const underRace = false
