package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

const oneStep = `
platform: "ensemble"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
ensemble_scheduling { step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }
`

// A namespaced is an engine with two repositories, which have an ensemble each
// that calls m.
type namespaced struct {
	*Engine
	t    *testing.T
	dirs [2]string
}

func startNamespaced(t *testing.T, opt Options) *namespaced {
	t.Helper()
	n := &namespaced{t: t}
	for i, own := range []string{"ens0", "ens1"} {
		n.dirs[i] = repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": "", own + "/config.pbtxt": oneStep, own + "/1/": ""})
	}
	opt.Repositories, opt.Namespaces, opt.LoadThreads = n.dirs[:], true, 2
	opt.Backends, opt.Log = []backend.Backend{&counted{}}, slog.New(slog.DiscardHandler)
	n.Engine = New(opt)
	if err := n.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return n
}

// server sends a request and returns the repository whose m has served it, -1
// when none has, and the error.
func (n *namespaced) server(name string) (int, error) {
	n.t.Helper()
	before := n.counts()
	lease, err := n.Acquire(name, infer.LatestVersion)
	if err != nil {
		return -1, err
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Hold(lease)
	*r.AddInput() = in("INPUT0", tensor.FP32, tensor.Shape{1, 2}, eightBytes)
	if err := lease.Infer(n.t.Context(), r); err != nil {
		return -1, err
	}
	after := n.counts()
	for i := range after {
		if after[i] > before[i] {
			return i, nil
		}
	}
	return -1, nil
}

// counts returns how many requests the m of each repository has served.
func (n *namespaced) counts() (served [2]uint64) {
	n.t.Helper()
	stats, err := n.Statistics("", infer.LatestVersion)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range stats {
		for d, dir := range n.dirs {
			if stats[i].Name == "m" && stats[i].Namespace == dir {
				served[d] = stats[i].Success.Count
			}
		}
	}
	return served
}

// want checks which m serves m itself and the two ensembles; -1 for none.
func (n *namespaced) want(m, ens0, ens1 int) {
	n.t.Helper()
	for name, want := range map[string]int{"m": m, "ens0": ens0, "ens1": ens1} {
		got, err := n.server(name)
		if got != want {
			n.t.Errorf("%s: got served by the m of repository %d (%v), want %d", name, got, err, want)
		}
	}
}

func (n *namespaced) poll() {
	n.t.Helper()
	if err := n.Poll(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.work.Wait()
}

func TestNamespacesFollowTheirRepositories(t *testing.T) {
	n := startNamespaced(t, Options{})
	n.want(-1, 0, 1)
	_, err := n.Acquire("m", infer.LatestVersion)
	if got := status.Public(err); status.CodeOf(err) != status.InvalidArgument || !strings.HasPrefix(got, "There are 2 identifiers of model 'm' in global map") {
		t.Errorf("got %v, want the name ambiguous", err)
	}
	for i, dir := range n.dirs { // a client can name the one it means
		if got, err := n.server(dir + "::m"); got != i {
			t.Errorf("%s: got served by repository %d (%v), want %d", dir, got, err, i)
		}
	}
	if _, err := n.Acquire("nosuch", infer.LatestVersion); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v, want an invalid argument, as in Triton", err)
	}
	if cfg, err := n.Config("ens1", infer.LatestVersion); err != nil || cfg.GetEnsembleScheduling().GetStep()[0].GetModelNamespace() != n.dirs[1] {
		t.Errorf("got %v, %v, want the step's namespace %s", cfg, err, n.dirs[1])
	}
	var names []string
	for _, line := range n.Index(false) {
		names = append(names, line.Name)
	}
	if got := strings.Join(names, " "); len(names) != 4 || strings.Count(got, "m") != 2 || !n.Ready() {
		t.Errorf("got the index %q and ready %v, want m twice and both ensembles, and ready", got, n.Ready())
	}

	for i, order := range [][2]int{{0, 1}, {1, 0}} { // either goes and comes back
		gone, left := order[0], order[1]
		remove(t, n.dirs[gone], "m")
		n.poll()
		n.want(left, left, left) // the only m of that name serves both
		write(t, n.dirs[gone], "m/config.pbtxt", oneInput)
		write(t, n.dirs[gone], "m/1/model", strings.Repeat("x", i+1))
		n.poll()
		n.want(-1, 0, 1)
	}
}

func TestNamespacesAreLoadedByName(t *testing.T) {
	n := startNamespaced(t, Options{Control: true, Startup: []string{}})
	n.want(-1, -1, -1)
	if err := n.Load(t.Context(), "ens1", Override{}); err != nil {
		t.Fatal(err)
	}
	n.want(1, -1, 1) // only its own m is loaded, and so the name is not ambiguous
	if err := n.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	n.want(-1, -1, 1)
	if err := n.Load(t.Context(), "ens0", Override{}); err != nil {
		t.Fatal(err)
	}
	n.want(-1, 0, 1)
	write(t, n.dirs[0], "m/config.pbtxt", "input {")
	if err := n.Load(t.Context(), "m", Override{}); !strings.Contains(status.Public(err), filepath.Join(n.dirs[0], "m")) {
		t.Errorf("got %v, want the broken one named", err)
	}
	n.want(-1, 0, 1)
	if err := n.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	n.work.Wait()
	n.want(-1, -1, -1)
	if _, err := n.Acquire("m", infer.LatestVersion); status.CodeOf(err) != status.NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if err := n.Load(t.Context(), "nosuch", Override{}); status.CodeOf(err) != status.Internal {
		t.Errorf("got %v, want an internal error, as in Triton", err)
	}
}
