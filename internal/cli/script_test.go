package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	run := func() { os.Exit(Main(os.Args, os.Stdout, os.Stderr)) }
	testscript.Main(m, map[string]func(){"shoal": run, "tritonserver": run, "perf_analyzer": run})
}

// TestScripts runs the commands as a user would, one behaviour a file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true})
}
