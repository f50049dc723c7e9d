//go:build race

package kservegrpc

// raceDetector is on: sync.Pool drops what it is given at random.
const raceDetector = true
