// Command shoal is an inference server. See `shoal --help`.
package main

import (
	"os"

	"shoal/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdout, os.Stderr)) }
