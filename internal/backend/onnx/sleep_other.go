//go:build !linux

package onnx

import "time"

func sleep(d time.Duration) { time.Sleep(d) }
