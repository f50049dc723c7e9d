//go:build !linux

package perftest

import "time"

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
