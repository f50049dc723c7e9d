// Package arch tests the shape of the module itself: which package may import
// which, and that nothing uses cgo.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// floors lists the house from the ground up. A package may import those on
// lower floors, and those below its own folder; what stands on one floor does
// not know its neighbours.
var floors = [][]string{
	{"internal/tensor", "internal/connlimit", "internal/reject", "internal/race", "internal/timerfd", "internal/procs", "internal/protocol/h2", "internal/protocol/compression", "internal/protocol/tlsfiles", "internal/logsink", "internal/histogram", "internal/spelling", "internal/tempdir", "internal/properties", "internal/archive", "python"},
	{"internal/status"},
	{"internal/model/modelpb", "internal/logset", "internal/trace", "internal/shm", "internal/usermetric", "internal/inflight"},
	{"internal/infer", "internal/model", "internal/worker", "internal/trace/otlp"},
	{"internal/backend", "internal/accesslog"},
	{"internal/arrivals", "internal/respcache", "internal/sched", "internal/backend/backendtest", "internal/backend/cuda"},
	{"internal/sim"},
	{"internal/backend/onnx/ort", "internal/backend/cuda/cudatest"},
	{"internal/backend/onnx/library"},
	{"internal/backend/onnx/onnxtest"},
	{"internal/backend/example/identity", "internal/backend/example/repeat", "internal/backend/example/square", "internal/backend/onnx", "internal/backend/python", "internal/ensemble", "internal/repository"},
	{"internal/engine"},
	{"internal/modelstore"},
	{"internal/protocol/kservegrpc/inferencepb", "internal/protocol/grpcserver", "internal/protocol/httpserver", "internal/protocol/kserve"},
	{"internal/protocol/kservehttp", "internal/protocol/kservegrpc", "internal/protocol/modelserver", "internal/protocol/session", "internal/metrics", "internal/demo", "internal/client", "internal/perf/chart"},
	{"internal/load", "internal/top", "internal/diagram", "internal/perf/input"},
	{"internal/perf/result"},
	{"internal/perf/judge", "internal/perf/drive", "internal/perf/live"},
	{"internal/perf/report", "internal/perf"},
	{"internal/perf/page", "internal/perf/perftest"},
	{"internal/cli/command"},
	{"internal/cli/perfcmd"},
	{"internal/cli", "bench/internal/peer", "bench/internal/report"},
	{"bench/internal/measure", "bench/internal/ask", "bench/internal/shapes", "bench/internal/watch"},
	{"bench/internal/attack"},
	{"cmd/shoal", "bench/attack", "bench/batcher", "bench/cache", "bench/criteria", "bench/gpu", "bench/ladder", "bench/models", "bench/overload", "bench/perf", "bench/pipeline", "bench/profile", "bench/python", "bench/repository", "bench/size", "bench/soak", "bench/triton"},
}

const root = "../.."

func TestPackagesImportOnlyLowerFloors(t *testing.T) {
	floor := make(map[string]int)
	for i, names := range floors {
		for _, n := range names {
			floor[n] = i
		}
	}
	for file, imports := range imports(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if pkg == "internal/arch" {
			continue
		}
		at, known := floor[pkg]
		if !known {
			t.Errorf("%s: package %s has no floor; give it one here and a line in ARCHITECTURE.md", file, pkg)
			continue
		}
		for _, imp := range imports {
			name, ours := strings.CutPrefix(imp, "shoal/")
			if !ours || name == pkg || strings.HasSuffix(file, "_test.go") {
				continue
			}
			if floor[name] >= at {
				t.Errorf("%s imports %s, which does not stand below it", file, name)
			}
		}
	}
}

func TestNothingUsesCgo(t *testing.T) {
	for file, imports := range imports(t) {
		for _, imp := range imports {
			if imp == "C" {
				t.Errorf("%s imports C; native libraries are loaded at run time, under internal/backend", file)
			}
		}
	}
}

// TestOnlyBackendsLoadNativeCode keeps purego where conventions want it.
func TestOnlyBackendsLoadNativeCode(t *testing.T) {
	for file, imports := range imports(t) {
		for _, imp := range imports {
			if imp == "github.com/ebitengine/purego" && !strings.HasPrefix(file, "internal/backend/") {
				t.Errorf("%s imports purego, got a file outside internal/backend", file)
			}
		}
	}
}

// TestNoTemplates keeps the binary small: with a template in it the linker keeps every exported method of every type,
// since a template could call them by name. Cobra brings text/template in with the methods below, gRPC unless the build
// has the tag grpcnotrace.
func TestNoTemplates(t *testing.T) {
	for file, imports := range imports(t) {
		if strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "internal/") {
			continue
		}
		for _, imp := range imports {
			if imp == "text/template" || imp == "html/template" {
				t.Errorf("%s imports %s; write the text in Go", file, imp)
			}
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{".SetUsageTemplate(", ".SetHelpTemplate(", ".SetVersionTemplate("} {
			if strings.Contains(string(text), method) {
				t.Errorf("%s calls %s); use a function instead", file, method)
			}
		}
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "-tags=grpcnotrace") {
		t.Error("the Makefile builds without the tag grpcnotrace")
	}
}

func TestEveryPackageHasItsLineInTheArchitecture(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range floors {
		for _, n := range names {
			short := strings.TrimPrefix(n, "internal/")
			if !strings.Contains(string(text), "`"+short+"`") {
				t.Errorf("ARCHITECTURE.md does not mention `%s`", short)
			}
		}
	}
}

// imports returns what each Go file of the module imports, by its path.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "build" || (strings.HasPrefix(d.Name(), ".") && path != root)) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found[rel] = nil
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[rel] = append(found[rel], imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
