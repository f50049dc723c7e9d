//go:build !race

package kservegrpc

const raceDetector = false
