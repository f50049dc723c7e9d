//go:build !linux

package perf

func newAlarm() (alarm, error) { return newRuntimeAlarm() }
