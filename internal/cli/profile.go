package cli

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// profileVariable names a file that gets a CPU profile of the whole command, for
// `go tool pprof` and for `make profile`.
const profileVariable = "SHOAL_CPU_PROFILE"

// profile starts a CPU profile if the environment asks for one, and returns a
// function that ends it.
func profile() (end func(), err error) {
	path := os.Getenv(profileVariable)
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", profileVariable, err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, fmt.Errorf("%s: %w", profileVariable, err)
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}, nil
}
