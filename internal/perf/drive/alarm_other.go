//go:build !linux

package drive

// NewAlarm returns an alarm that is on time.
func NewAlarm() (Alarm, error) { return NewRuntimeAlarm() }
