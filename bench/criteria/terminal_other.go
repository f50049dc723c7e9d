//go:build !linux

package main

import (
	"errors"
	"os"
)

func openTerminal() (screen, tty *os.File, err error) {
	return nil, nil, errors.New("a terminal is only made on Linux")
}
