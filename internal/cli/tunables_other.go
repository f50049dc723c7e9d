//go:build !linux

package cli

func setTunables() {}
