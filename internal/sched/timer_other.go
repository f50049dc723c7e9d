//go:build !linux

package sched

func newTimer(f func()) (timer, error) { return newRuntimeTimer(f) }
