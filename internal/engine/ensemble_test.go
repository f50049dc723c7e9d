package engine

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// part is a model of the adder backend: OUT is IN plus one, and PASS is IN.
const part = `
backend: "fake"
max_batch_size: 8
input { name: "IN" data_type: TYPE_UINT8 dims: [ 1 ] }
output [ { name: "OUT" data_type: TYPE_UINT8 dims: [ 1 ] }, { name: "PASS" data_type: TYPE_UINT8 dims: [ 1 ] } ]
instance_group { count: 1 }
`

// chained is an ensemble of steps; each line is "model in>out,...".
func chained(batch int, steps ...string) string {
	text := fmt.Sprintf(`platform: "ensemble" max_batch_size: %d
input { name: "a" data_type: TYPE_UINT8 dims: [ 1 ] } output { name: "z" data_type: TYPE_UINT8 dims: [ 1 ] } ensemble_scheduling { `, batch)
	for _, step := range steps {
		name, links, _ := strings.Cut(step, " ")
		text += `step { model_name: "` + name + `" model_version: -1 `
		for link := range strings.SplitSeq(links, " ") {
			key, value, _ := strings.Cut(link, "=")
			side := "output_map"
			if strings.HasPrefix(key, "IN") || key == "a" {
				side = "input_map"
			}
			text += side + ` { key: "` + key + `" value: "` + value + `" } `
		}
		text += "} "
	}
	return text + "}"
}

// An adder is a backend whose models add one to each byte. It counts the
// answers that are not released.
type adder struct {
	backendtest.Fake
	out  atomic.Int64 // answers in use
	runs atomic.Int64
	fail func() error                   // nil: never
	hold func(r *infer.Request)         // nil: answers at once
	more func(r *infer.Request) []int64 // the answers of a decoupled model
}

type answer struct {
	of   *adder
	data []byte
}

func (a *answer) Release() {
	for i := range a.data {
		a.data[i] = 0xEE // whoever still reads it finds out
	}
	a.of.out.Add(-1)
}

func newAdder() *adder {
	a := &adder{}
	a.OnRun = func(b *infer.Batch) error {
		for _, r := range b.Requests {
			a.runs.Add(1)
			if a.hold != nil {
				a.hold(r)
			}
			if a.fail != nil {
				if r.Err = a.fail(); r.Err != nil {
					continue
				}
			}
			if r.Stream != nil {
				for _, add := range a.more(r) {
					resp := new(infer.Response)
					a.fill(r, resp, byte(add))
					if err := r.Stream.Send(resp, false); err != nil {
						return err
					}
				}
				r.Stream.Finish(nil)
				continue
			}
			a.fill(r, &r.Response, 1)
		}
		return nil
	}
	return a
}

func (a *adder) fill(r *infer.Request, resp *infer.Response, add byte) {
	data := r.Inputs[0].Data.Contiguous(nil)
	sum := &answer{of: a, data: make([]byte, 2*len(data))}
	a.out.Add(1)
	for i, b := range data {
		sum.data[i], sum.data[len(data)+i] = b+add, b
	}
	for i, name := range []string{"OUT", "PASS"} {
		if len(r.Outputs) > 0 && r.Outputs[0].Name != name && (len(r.Outputs) == 1 || r.Outputs[1].Name != name) {
			continue
		}
		out := resp.AddOutput()
		out.Name, out.Type, out.Index, out.Data = name, tensor.Uint8, i, sum.data[i*len(data):(i+1)*len(data)]
		out.Shape = append(out.Shape, r.Inputs[0].Shape...)
	}
	resp.Own(sum)
}

// startEnsemble serves models by their configurations.
func startEnsemble(t testing.TB, a *adder, opt Options, configs map[string]string) (*Engine, string) {
	t.Helper()
	files := map[string]string{}
	for name, text := range configs {
		files[name+"/config.pbtxt"], files[name+"/1/"] = text, ""
	}
	dir := repo(t, files)
	opt.Repositories, opt.LoadThreads, opt.Log = []string{dir}, 2, slog.New(slog.DiscardHandler)
	opt.Backends = []backend.Backend{a, identity.Backend{}}
	e, err := Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := a.out.Load(); n != 0 {
			t.Errorf("%d answers of steps were not released", n)
		}
	})
	return e, dir
}

// sum sends one row to an ensemble and returns the output z.
func sum(ctx context.Context, e *Engine, name string, value byte) (byte, error) {
	lease, err := e.Acquire(name, infer.LatestVersion)
	if err != nil {
		return 0, err
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Hold(lease)
	r.Inputs = append(r.Inputs, in("a", tensor.Uint8, tensor.Shape{1, 1}, string([]byte{value})))
	if err := lease.Infer(ctx, r); err != nil {
		return 0, err
	}
	if len(r.Response.Outputs) != 1 || !r.Response.Outputs[0].Shape.Equal(tensor.Shape{1, 1}) {
		return 0, fmt.Errorf("got outputs %v, want one of shape [1,1]", r.Response.Outputs)
	}
	return r.Response.Outputs[0].Data[0], nil
}

const diamond = "p IN=a OUT=left PASS=right|p IN=left OUT=l2|q IN=right OUT=r2 PASS=r3|join IN=l2 IN1=r2 IN2=r3 OUT=z"

var joinPart = strings.Replace(part, `input { name: "IN" data_type: TYPE_UINT8 dims: [ 1 ] }`,
	`input [ { name: "IN" data_type: TYPE_UINT8 dims: [ 1 ] }, { name: "IN1" data_type: TYPE_UINT8 dims: [ 1 ] }, { name: "IN2" data_type: TYPE_UINT8 dims: [ 1 ] optional: true } ]`, 1)

func steps(text string) []string { return strings.Split(text, "|") }

func TestEnsembleSendsTensorsThroughItsSteps(t *testing.T) {
	a := newAdder()
	e, _ := startEnsemble(t, a, Options{}, map[string]string{
		"p": part, "q": part + "dynamic_batching { }", "join": joinPart,
		"same":    "backend: \"identity\" max_batch_size: 8 input { name: \"INPUT0\" data_type: TYPE_UINT8 dims: [ 1 ] } output { name: \"OUTPUT0\" data_type: TYPE_UINT8 dims: [ 1 ] }",
		"chain":   chained(8, "p IN=a OUT=b", "q IN=b OUT=c", "p IN=c OUT=z"),
		"diamond": chained(8, steps(diamond)...),
		"nested":  chained(8, "chain a=a z=b", "diamond a=b z=z"),
		"passes":  chained(8, "p IN=a OUT=b", "same INPUT0=b OUTPUT0=c", "q IN=c OUT=z"),
	})
	for name, want := range map[string]byte{"chain": 13, "diamond": 13, "nested": 16, "passes": 12} {
		for range 3 { // the second uses the first one's memory
			if got, err := sum(t.Context(), e, name, 10); err != nil || got != want {
				t.Errorf("%s: got %d, %v, want %d", name, got, err, want)
			}
		}
		if n := a.out.Load(); n != 0 {
			t.Errorf("%s: %d answers of steps are still in use", name, n)
		}
	}
	stats, err := e.Statistics("nested", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	s := stats[0]
	if s.Success.Count != 3 || s.InferenceCount != 3 || s.ExecutionCount != 3 || s.Queue.Count != 3 || s.ComputeInfer.Count != 3 || s.Pending != 0 || s.Busy != 0 {
		t.Errorf("got %+v, want three requests and executions", s)
	}
	parts, _ := e.Statistics("p", infer.LatestVersion)
	if got, want := parts[0].Success.Count, uint64(3*(2+2+4+1)); got != want {
		t.Errorf("got %d requests to p, want %d", got, want)
	}
}

func TestEnsembleRunsOnlyTheStepsOfTheWantedOutputs(t *testing.T) {
	a := newAdder()
	cfg := strings.Replace(chained(8, "p IN=a OUT=z", "q IN=a OUT=y"), "output { name", `output [ { name: "y" data_type: TYPE_UINT8 dims: [ 1 ] }, { name`, 1)
	cfg = strings.Replace(cfg, "} ensemble_scheduling", "} ] ensemble_scheduling", 1)
	e, _ := startEnsemble(t, a, Options{}, map[string]string{"p": part, "q": part, "two": cfg})
	lease, err := e.Acquire("two", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	r.Hold(lease)
	r.Sequence = infer.Sequence{ID: 7, Start: true}
	r.Inputs = append(r.Inputs, in("a", tensor.Uint8, tensor.Shape{2, 1}, "\x01\x02"))
	r.Outputs = append(r.Outputs, infer.Wanted{Name: "y"})
	if err := lease.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := string(r.Response.Outputs[0].Data); len(r.Response.Outputs) != 1 || got != "\x02\x03" || a.runs.Load() != 1 {
		t.Errorf("got %q after %d runs, want one output and one run", got, a.runs.Load())
	}
	want := []infer.Param{
		{Name: "sequence_id", Kind: infer.ParamInt, Int: 7},
		{Name: "sequence_start", Kind: infer.ParamBool, Bool: true},
		{Name: "sequence_end", Kind: infer.ParamBool},
	}
	if got := r.Response.Params; len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got parameters %v, want %v", got, want)
	}
	r.Release()
}

func TestEnsembleErrorsNameTheEnsembleAndCountTwice(t *testing.T) {
	a := newAdder()
	e, _ := startEnsemble(t, a, Options{}, map[string]string{"p": part, "q": part, "inner": chained(8, "p IN=a OUT=z"), "outer": chained(8, "q IN=a OUT=b", "inner a=b z=z")})
	a.fail = func() error {
		if a.runs.Load() == 2 {
			return status.Errorf(status.InvalidArgument, "no luck")
		}
		return nil
	}
	_, err := sum(t.Context(), e, "outer", 1)
	if got := status.Public(err); got != "in ensemble 'outer', in ensemble 'inner', no luck (step 'p')" || status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v %q, want the ensembles in front of the step's error, and the step", status.CodeOf(err), got)
	}
	for name, want := range map[string]uint64{"outer": 2, "inner": 2, "p": 1, "q": 0} {
		s, _ := e.Statistics(name, infer.LatestVersion)
		if s[0].Fail.Count != want || (name == "outer" && s[0].Failures["OTHER"] != 2) {
			t.Errorf("%s: got %d failures, %v, want %d", name, s[0].Fail.Count, s[0].Failures, want)
		}
	}
}

// collect returns what a decoupled ensemble answers to one row.
func collect(ctx context.Context, e *Engine, name string, value byte) (got []byte, err error) {
	lease, err := e.Acquire(name, infer.LatestVersion)
	if err != nil {
		return nil, err
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Hold(lease)
	r.Inputs = append(r.Inputs, in("a", tensor.Uint8, tensor.Shape{1, 1}, string([]byte{value})))
	err = lease.InferStream(ctx, r, func(resp *infer.Response, final bool) error {
		if resp != nil {
			if resp.Err != nil {
				return resp.Err
			}
			got = append(got, resp.Outputs[0].Data...)
		}
		return nil
	})
	return got, err
}

func TestDecoupledEnsembleAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdder()
		many := part + "model_transaction_policy { decoupled: true }"
		configs := map[string]string{
			"p": strings.Replace(part, "count: 1", "count: 4", 1), "many": many,
			"flat":  chained(8, "p IN=a OUT=b", "many IN=b OUT=c", "p IN=c OUT=z"),
			"deep":  chained(8, "many IN=a OUT=b", "p IN=b OUT=c", "many IN=c OUT=d", "p IN=d OUT=z"),
			"plain": chained(8, "many IN=a OUT=z"),
		}
		configs["bound"] = strings.Replace(configs["deep"], "ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 1", 1)
		e, _ := startEnsemble(t, a, Options{}, configs)
		a.more = func(*infer.Request) []int64 { return []int64{0, 10, 20} }
		a.hold = func(r *infer.Request) { // the first take the longest
			if r.Stream == nil {
				time.Sleep(time.Duration(100-int(r.Inputs[0].Data.First[0])) * time.Millisecond)
			}
		}
		for name, want := range map[string]string{"flat": "[3 13 23]", "plain": "[1 11 21]", "deep": "[3 13 23 13 23 33 23 33 43]", "bound": "[3 13 23 13 23 33 23 33 43]"} {
			got, err := collect(t.Context(), e, name, 1)
			if fmt.Sprint(got) != want || err != nil {
				t.Errorf("%s: got %v, %v, want %s", name, got, err, want)
			}
			if n := a.out.Load(); n != 0 {
				t.Errorf("%s: %d answers of steps are still in use", name, n)
			}
		}
		s, _ := e.Statistics("flat", infer.LatestVersion)
		if !s[0].Config.GetModelTransactionPolicy().GetDecoupled() || s[0].Success.Count != 1 || len(s[0].Responses) != 3 {
			t.Errorf("got %+v, want a decoupled model with one request and three responses", s[0])
		}
	})
}

func TestDecoupledEnsembleFailsAsAWhole(t *testing.T) {
	a := newAdder()
	e, _ := startEnsemble(t, a, Options{}, map[string]string{
		"p": part, "many": part + "model_transaction_policy { decoupled: true }", "flat": chained(8, "many IN=a OUT=c", "p IN=c OUT=z"),
	})
	a.more = func(*infer.Request) []int64 { return make([]int64, 100) }
	a.fail = func() error {
		if a.runs.Load() == 50 {
			return status.Errorf(status.Internal, "no luck")
		}
		return nil
	}
	got, err := collect(t.Context(), e, "flat", 1)
	if err == nil || status.Public(err) != "in ensemble 'flat', no luck (step 'p')" || len(got) >= 100 {
		t.Errorf("got %d answers and %v, want fewer than 100 and the step's error", len(got), err)
	}
	if n := a.out.Load(); n != 0 {
		t.Errorf("%d answers of steps are still in use", n)
	}
}

// TestEnsemblesShareModelsWithOneInstance has as many requests in flight as
// would deadlock if a step held what another needs.
func TestEnsemblesShareModelsWithOneInstance(t *testing.T) {
	a := newAdder()
	e, _ := startEnsemble(t, a, Options{}, map[string]string{
		"p": part, "q": part + "dynamic_batching { }", "join": joinPart,
		"diamond": chained(8, steps(diamond)...), "nested": chained(8, "diamond a=a z=b", "q IN=b OUT=c", "diamond a=c z=z"),
	})
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			if got, err := sum(t.Context(), e, "nested", byte(i)); err != nil || got != byte(i)+7 {
				t.Errorf("got %d, %v, want %d", got, err, byte(i)+7)
			}
		})
	}
	wg.Wait()
}

var stressRequests = flag.Int("ensemble-requests", 2000, "requests of TestEnsemblesSurviveCancelsAndFailures")

// TestEnsemblesSurviveCancelsAndFailures ends every request one way or the other,
// exactly once, and keeps no memory.
func TestEnsemblesSurviveCancelsAndFailures(t *testing.T) {
	requests := *stressRequests
	a := newAdder()
	e, _ := startEnsemble(t, a, Options{}, map[string]string{
		"p": part, "q": part + "dynamic_batching { }", "join": joinPart, "many": part + "model_transaction_policy { decoupled: true }",
		"diamond": chained(8, steps(diamond)...), "flat": chained(8, "diamond a=a z=b", "many IN=b OUT=c", "diamond a=c z=z"),
	})
	unlucky := status.Errorf(status.Internal, "no luck")
	a.fail = func() error {
		if rand.IntN(50) == 0 {
			return unlucky
		}
		return nil
	}
	a.more = func(*infer.Request) []int64 { return make([]int64, rand.IntN(8)) }
	var wg sync.WaitGroup
	var ended, answered atomic.Int64
	slots := make(chan struct{}, 64)
	for i := range requests {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx := t.Context()
			if i%3 == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
				defer cancel()
			}
			var err error
			if i%4 == 0 {
				_, err = collect(ctx, e, "flat", 1)
			} else {
				var got byte
				if got, err = sum(ctx, e, "diamond", byte(i)); err == nil && got != byte(i)+3 {
					t.Errorf("got %d, want %d", got, byte(i)+3)
				}
			}
			ended.Add(1)
			switch code := status.CodeOf(err); {
			case err == nil:
				answered.Add(1)
			case code == status.Internal && strings.Contains(status.Public(err), "no luck (step '"):
			case ctx.Err() != nil && (code == status.Cancelled || code == status.DeadlineExceeded):
			default:
				t.Errorf("got %v %v, want an answer, no luck or the end of the context", code, err)
			}
		})
	}
	wg.Wait()
	if n := a.out.Load(); n != 0 {
		t.Errorf("%d answers of steps are still in use", n)
	}
	for _, name := range []string{"diamond", "flat", "p", "q", "join", "many"} {
		s, err := e.Statistics(name, infer.LatestVersion)
		if err != nil || s[0].Pending != 0 || s[0].Busy != 0 {
			t.Errorf("%s: got %d pending, %d busy, %v, want none", name, s[0].Pending, s[0].Busy, err)
		}
		v, err := e.find(name, infer.LatestVersion)
		if err != nil || v.leases.count() != 0 {
			t.Errorf("%s: got %v, %d leases, want none", name, err, v.leases.count())
		}
	}
	t.Logf("%d of %d requests answered", answered.Load(), ended.Load())
}

func TestEnsembleStepsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const same = `backend: "identity" max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_UINT8 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ 1 ] }`
	e, _ := startEnsemble(t, newAdder(), Options{}, map[string]string{
		"same": same, "one": chained(8, "same INPUT0=a OUTPUT0=z"),
		"four": chained(8, "same INPUT0=a OUTPUT0=b", "same INPUT0=b OUTPUT0=c", "same INPUT0=c OUTPUT0=d", "same INPUT0=d OUTPUT0=z"),
	})
	allocs := func(name string) float64 {
		return testing.AllocsPerRun(2000, func() {
			if _, err := sum(t.Context(), e, name, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, four := allocs("one"), allocs("four"); four > one {
		t.Errorf("got %.0f allocations with four steps and %.0f with one, want as many", four, one)
	}
}

// state returns the index of one model.
func state(e *Engine, name string) string {
	for _, line := range e.Index(false) {
		if line.Name == name {
			return strings.TrimSpace(fmt.Sprintf("%s %s", line.State, line.Reason))
		}
	}
	return "unknown"
}

func TestEnsembleFollowsItsModels(t *testing.T) {
	a := newAdder()
	e, dir := startEnsemble(t, a, Options{Control: true, Startup: []string{}}, map[string]string{
		"p": part, "q": part, "ens": chained(8, "p IN=a OUT=b", "q IN=b OUT=z"), "outer": chained(8, "ens a=a z=z"), "other": chained(8, "p IN=a OUT=z"),
	})
	ctx := t.Context()
	check := func(when string, want map[string]string) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for name, want := range want {
			for state(e, name) != want && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond) // it drains
			}
			if got := state(e, name); got != want {
				t.Errorf("%s: %s is %q, want %q", when, name, got, want)
			}
		}
	}
	act := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	act("load", e.Load(ctx, "outer", Override{}))
	check("after the load of outer", map[string]string{"outer": "READY", "ens": "READY", "p": "READY", "q": "READY", "other": ""})
	if got, err := sum(ctx, e, "outer", 1); got != 3 || err != nil {
		t.Errorf("got %d, %v, want 3", got, err)
	}
	act("unload", e.Unload(ctx, "q", false))
	check("after the unload of q", map[string]string{"outer": "UNAVAILABLE unloaded", "ens": "UNAVAILABLE unloaded", "p": "READY", "q": "UNAVAILABLE unloaded"})
	if !e.Ready() {
		t.Error("not ready, want ready: nothing has failed")
	}
	act("load", e.Load(ctx, "q", Override{}))
	check("after the load of q", map[string]string{"outer": "READY", "ens": "READY", "q": "READY"})
	old, _ := e.find("outer", 1)
	act("load", e.Load(ctx, "q", Override{}))
	if now, _ := e.find("outer", 1); now != old {
		t.Error("outer was loaded again, though nothing has changed")
	}
	write(t, dir, "q/config.pbtxt", strings.Replace(part, "max_batch_size: 8", "max_batch_size: 4", 1))
	act("load", e.Load(ctx, "q", Override{}))
	const small = "ensemble ens allows maximum batch size 8, but it contains model q which only allows maximum batch size to be 4"
	check("after q has changed", map[string]string{
		"q": "READY", "ens": "UNAVAILABLE Invalid argument: " + small,
		"outer": "UNAVAILABLE Invalid argument: ensemble 'outer' depends on 'ens' which is not valid. Model 'ens' failed with error: " + small,
	})
	if e.Ready() {
		t.Error("ready, want not ready: an ensemble has failed")
	}
	err := e.Load(ctx, "ens", Override{})
	if got := status.Public(err); got != "load failed for model 'ens': "+small+"\n" || status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v, want the reason", err)
	}
	write(t, dir, "q/config.pbtxt", part)
	act("load", e.Load(ctx, "q", Override{}))
	check("after q is as before", map[string]string{"outer": "READY", "ens": "READY", "q": "READY"})

	act("load", e.Load(ctx, "other", Override{}))
	act("unload", e.Unload(ctx, "outer", true))
	check("after the unload with dependents", map[string]string{ // other needs p, and a client has asked for q and ens
		"outer": "UNAVAILABLE unloaded", "ens": "READY", "q": "READY", "p": "READY", "other": "READY",
	})
	act("unload", e.Unload(ctx, "ens", true))
	act("unload", e.Unload(ctx, "other", true))
	check("after the last unload", map[string]string{"ens": "UNAVAILABLE unloaded", "other": "UNAVAILABLE unloaded", "q": "READY", "p": "UNAVAILABLE unloaded"})
}

func TestEnsembleNeedsItsModels(t *testing.T) {
	for _, c := range []struct {
		name    string
		configs map[string]string
		want    string // the text of the load's error
	}{
		{"no such models", map[string]string{"ens": chained(8, "x IN=a OUT=b", "p IN=b OUT=c", "w IN=c OUT=z"), "p": part}, "load failed for model 'ens': ensemble ens contains models that are not available or ambiguous: w, x\n"},
		{"a model that cannot be read", map[string]string{"ens": chained(8, "p IN=a OUT=z"), "p": "backend: 3"}, "load failed for model 'ens': ensemble ens contains models that are not available or ambiguous: p\n"},
		{"a model that does not load", map[string]string{"ens": chained(8, "p IN=a OUT=z"), "p": strings.Replace(part, "fake", "none", 1)}, "load failed for model 'ens': ensemble 'ens' depends on 'p' which has no loaded version. Model 'p' loading failed with error: version 1 is at UNAVAILABLE state: Invalid argument: unable to find backend library for backend 'none' of model 'p'; this server has: fake, identity;\n"},
		{"a version that is not there", map[string]string{"ens": strings.Replace(chained(8, "p IN=a OUT=z"), "model_version: -1", "model_version: 3", 1), "p": part}, "load failed for model 'ens': ensemble 'ens' depends on 'p' whose required version 3 is not loaded.\n"},
		{"itself", map[string]string{"ens": chained(8, "ens a=a z=z")}, "load failed for model 'ens': circular dependency between ensembles: ens -> ... -> ens -> ens\n"},
		{"two that call each other", map[string]string{"ens": chained(8, "two a=a z=z"), "two": chained(8, "ens a=a z=z")}, "load failed for model 'ens': circular dependency between ensembles: ens -> ... -> two -> ens\n"},
		{"a fault in the file", map[string]string{"ens": chained(8, "p IN=a OUT=b")}, "failed to load 'ens', failed to poll from model repository: ensemble output 'z' for ensemble ens' is not used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := startEnsemble(t, newAdder(), Options{Control: true, Startup: []string{}}, c.configs)
			err := e.Load(t.Context(), "ens", Override{})
			if got := status.Public(err); err == nil || got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestPollFollowsTheModelsOfAnEnsemble(t *testing.T) {
	a := newAdder()
	e, dir := startEnsemble(t, a, Options{}, map[string]string{"p": part, "q": part, "ens": chained(8, "p IN=a OUT=b", "q IN=b OUT=z")})
	poll := func() {
		t.Helper()
		if err := e.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.work.Wait()
	}
	if err := os.Rename(filepath.Join(dir, "q"), filepath.Join(dir, ".q")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		poll()
		if got := state(e, "ens"); got != "UNAVAILABLE unloaded" {
			t.Errorf("without q: got %q, want it unloaded", got)
		}
	}
	if err := os.Rename(filepath.Join(dir, ".q"), filepath.Join(dir, "q")); err != nil {
		t.Fatal(err)
	}
	poll()
	if got, err := sum(t.Context(), e, "ens", 1); got != 3 || err != nil {
		t.Errorf("with q again: got %d, %v, want 3", got, err)
	}
	write(t, dir, "q/config.pbtxt", strings.Replace(part, "max_batch_size: 8", "max_batch_size: 4", 1))
	poll()
	if got := state(e, "ens"); !strings.Contains(got, "maximum batch size") {
		t.Errorf("with another q: got %q, want why it no longer fits", got)
	}
	write(t, dir, "q/config.pbtxt", part)
	poll()
	if got := state(e, "ens"); got != "READY" {
		t.Errorf("with q as before: got %q, want it ready", got)
	}
}
