//go:build race

package kservehttp

const raceEnabled = true
