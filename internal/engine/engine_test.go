package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/sched"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

const (
	eightBytes = "\x01\x00\x00\x00\x02\x00\x00\x00"
	oneString  = "\x03\x00\x00\x00abc"
)

func TestInferAnswersInOrderOfNamesWhateverTheOrderOfTheRequest(t *testing.T) {
	v, err := standard(t).find("two", 1)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	defer r.Release()
	ins := good()
	// A string in pieces, as gRPC may deliver it.
	ins[1].Data = infer.Data{First: []byte("\x03"), Rest: [][]byte{[]byte("\x00\x00\x00ab"), []byte("c")}}
	r.Inputs = append(r.Inputs, ins[1], ins[0])
	r.Outputs = append(r.Outputs, infer.Wanted{Name: "OUTPUT1", Binary: true}, infer.Wanted{Name: "OUTPUT0"}, infer.Wanted{Name: "OUTPUT1"})
	if err := v.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := []infer.Output{
		{Name: "OUTPUT0", Type: tensor.Int32, Shape: tensor.Shape{1, 2}, Data: []byte(eightBytes), Index: 1},
		{Name: "OUTPUT1", Type: tensor.Bytes, Shape: tensor.Shape{1, 1}, Data: []byte(oneString), Index: 0, Binary: true},
	}
	if diff := cmp.Diff(want, r.Response.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if r.Response.Model != "two" || r.Response.Version != 1 {
		t.Errorf("got %s version %d, want two version 1", r.Response.Model, r.Response.Version)
	}
}

func TestInferClassifies(t *testing.T) {
	v, err := standard(t).find("two", 1)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs,
		in("INPUT0", tensor.Int32, tensor.Shape{2, 2}, "\x01\x00\x00\x00\x02\x00\x00\x00"+"\x05\x00\x00\x00\xff\xff\xff\xff"),
		in("INPUT1", tensor.Bytes, tensor.Shape{2, 0}, ""))
	r.Outputs = append(r.Outputs, infer.Wanted{Name: "OUTPUT0", Classes: 5})
	if err := v.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := infer.Output{
		Name: "OUTPUT0", Type: tensor.Bytes, Shape: tensor.Shape{2, 2}, Index: 1,
		Data: []byte("\x08\x00\x00\x002:1:high" + "\x07\x00\x00\x001:0:low" + "\x07\x00\x00\x005:0:low" + "\x09\x00\x00\x00-1:1:high"),
	}
	if diff := cmp.Diff([]infer.Output{want}, r.Response.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

func TestInferGivesZerosForAnOptionalInputThatIsAbsent(t *testing.T) {
	v, err := standard(t).find("opt", 1)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs, in("INPUT0", tensor.FP32, tensor.Shape{2}, eightBytes))
	if err := v.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := r.Response.Outputs; len(got) != 2 || string(got[1].Data) != string(make([]byte, 12)) {
		t.Errorf("got %+v, want two outputs, the second of zeros", got)
	}
}

func TestStatisticsCountWhatWasAcceptedOnly(t *testing.T) {
	e := standard(t)
	v, err := e.find("two", 1)
	if err != nil {
		t.Fatal(err)
	}
	infer1 := func(inputs []infer.Input) {
		r := infer.NewRequest()
		defer r.Release()
		r.Inputs = inputs
		_ = v.Infer(t.Context(), r) // both outcomes are counted below
	}
	infer1(good())
	infer1(good()[:1]) // refused before acceptance
	infer1([]infer.Input{
		in("INPUT0", tensor.Int32, tensor.Shape{3, 2}, eightBytes+eightBytes+eightBytes),
		in("INPUT1", tensor.Bytes, tensor.Shape{3, 0}, ""),
	})
	list, err := e.Statistics("two", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	got := []uint64{s.Success.Count, s.Fail.Count, s.InferenceCount, s.ExecutionCount, s.Queue.Count, s.ComputeInfer.Count, uint64(s.Pending)}
	if diff := cmp.Diff([]uint64{2, 0, 4, 2, 2, 2, 0}, got); diff != "" {
		t.Errorf("success, fail, inferences, executions, queue, compute, pending (-want +got):\n%s", diff)
	}
	if len(s.Batches) != 2 || s.Batches[0].Size != 1 || s.Batches[1].Size != 3 || s.Batches[1].ComputeInfer.Count != 1 {
		t.Errorf("got batches %+v, want one of 1 and one of 3", s.Batches)
	}
}

func TestVersionSaysWhatIsAmiss(t *testing.T) {
	e := start(t, repo(t, map[string]string{
		"good/config.pbtxt": oneInput + "version_policy { all {} }", "good/1/": "", "good/3/": "",
		"bad/config.pbtxt": strings.Replace(oneInput, `"OUTPUT0"`, `"WRONG"`, 1), "bad/1/": "",
	}))
	tests := []struct {
		model   string
		version int64
		code    status.Code
		want    string
	}{
		{"nosuch", infer.LatestVersion, status.NotFound, "Request for unknown model: 'nosuch' is not found"},
		{"good", 2, status.NotFound, "Request for unknown model: 'good' version 2 is not found"},
		{"bad", infer.LatestVersion, status.NotFound, "Request for unknown model: 'bad' has no available versions"},
		{"bad", 1, status.Unavailable, "Request for unknown model: 'bad' version 1 is not at ready state"},
	}
	for _, tt := range tests {
		_, err := e.Acquire(tt.model, tt.version)
		if status.CodeOf(err) != tt.code || status.Public(err) != tt.want {
			t.Errorf("%s version %d: got %v (%v), want %v (%v)", tt.model, tt.version, err, status.CodeOf(err), tt.want, tt.code)
		}
	}
	if v, err := e.find("good", infer.LatestVersion); err != nil || v.Number() != 3 {
		t.Errorf("latest version of good: got %v, %v, want 3", v, err)
	}
	md, err := e.Metadata("good", infer.LatestVersion)
	if err != nil || !cmp.Equal(md.Versions, []int64{1, 3}) {
		t.Errorf("got versions %v (%v), want [1 3]", md.Versions, err)
	}
}

func TestOneBadModelDoesNotHideTheOthers(t *testing.T) {
	good := map[string]string{"good/config.pbtxt": oneInput, "good/1/": ""}
	tests := []struct {
		name   string
		files  map[string]string
		reason string
	}{
		{"a syntax error", map[string]string{"bad/config.pbtxt": "input {", "bad/1/": ""}, "config.pbtxt:1:"},
		{"no version", map[string]string{"bad/config.pbtxt": oneInput}, "at least one version must be available under the version policy of model 'bad'"},
		{"another name", map[string]string{"bad/config.pbtxt": oneInput + `name: "other"`, "bad/1/": ""}, "unexpected directory name 'bad' for model 'other'"},
		{"an unknown backend", map[string]string{"bad/config.pbtxt": strings.Replace(oneInput, "identity", "nosuch", 1), "bad/1/": ""}, "unable to find backend library for backend 'nosuch' of model 'bad'; this server has: identity"},
		{"a label file that is not there", map[string]string{"bad/config.pbtxt": twoInputs, "bad/1/": ""}, "labels.txt"},
		{"a GPU without one", map[string]string{"bad/config.pbtxt": oneInput + "instance_group { kind: KIND_GPU }", "bad/1/": ""}, "has kind KIND_GPU but no GPUs are available"},
		{"nobody to run it", map[string]string{"bad/config.pbtxt": oneInput + "instance_group { kind: KIND_CPU passive: true }", "bad/1/": ""}, "every instance group of model 'bad' is passive"},
		{"a backend that refuses it", map[string]string{"bad/config.pbtxt": strings.Replace(oneInput, `"OUTPUT0"`, `"WRONG"`, 1), "bad/1/": ""}, "Invalid argument: model 'bad': the identity backend has outputs OUTPUTn"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for _, m := range []map[string]string{good, tt.files} {
				for k, v := range m {
					files[k] = v
				}
			}
			e := start(t, repo(t, files))
			if !e.ModelReady("good", infer.LatestVersion) || e.ModelReady("bad", infer.LatestVersion) {
				t.Error("want good ready and bad not")
			}
			if e.Ready() || e.Failed() == nil {
				t.Errorf("got ready %v and failure %v, want strict readiness to see the fault", e.Ready(), e.Failed())
			}
			index := e.Index(false)
			if len(index) != 2 || index[0].State != StateUnavailable || !strings.Contains(index[0].Reason, tt.reason) {
				t.Errorf("got index %+v, want bad unavailable because of %q", index, tt.reason)
			}
			if got := e.Index(true); len(got) != 1 || got[0].Name != "good" {
				t.Errorf("got ready index %+v, want good alone", got)
			}
		})
	}
}

func TestAllOrNothingDoesNotBecomeReady(t *testing.T) {
	e := New(Options{
		Repositories: []string{repo(t, map[string]string{"good/config.pbtxt": oneInput, "good/1/": "", "bad/config.pbtxt": "input {", "bad/1/": ""})},
		AllOrNothing: true, LooseReadiness: true, LoadThreads: 1, Backends: []backend.Backend{identity.Backend{}}, Log: slog.New(slog.DiscardHandler),
	})
	if err := e.LoadAll(t.Context()); err == nil || !strings.Contains(err.Error(), `model "bad"`) {
		t.Errorf("got %v, want an error that names the bad model", err)
	}
	if _, err := e.Acquire("good", infer.LatestVersion); e.Ready() || status.CodeOf(err) != status.Unavailable {
		t.Errorf("got ready %v and %v for the good model, want neither", e.Ready(), err)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAModelInTwoRepositoriesIsNotLoaded(t *testing.T) {
	files := map[string]string{"twin/config.pbtxt": oneInput, "twin/1/": ""}
	e := start(t, repo(t, files), repo(t, files))
	want := []IndexEntry{{Name: "twin", Version: NoVersion, State: StateUnavailable, Reason: "model appears in two or more repositories"}}
	if diff := cmp.Diff(want, e.Index(true)); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

func TestInstancesFollowTheGroups(t *testing.T) {
	e := start(t, repo(t, map[string]string{
		"m/config.pbtxt": oneInput + `instance_group [ { count: 2 kind: KIND_CPU }, { name: "other" count: 1 kind: KIND_MODEL } ]`, "m/1/": "",
	}))
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range placements(v.Config()) {
		names = append(names, fmt.Sprintf("%s %s of %d", p.Name, p.Kind, p.Count))
	}
	want := []string{"m_0_0 KIND_CPU of 3", "m_0_1 KIND_CPU of 3", "other_0 KIND_MODEL of 3"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	if len(v.members) != 3 {
		t.Errorf("got %d instances, want 3", len(v.members))
	}
}

func TestPassiveInstancesAreThereAndGetNoWork(t *testing.T) {
	e := start(t, repo(t, map[string]string{
		"m/config.pbtxt": oneInput + `instance_group [ { count: 2 kind: KIND_CPU passive: true }, { count: 1 kind: KIND_CPU } ]`, "m/1/": "",
	}))
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	if active := schedulable(v.members); len(v.members) != 3 || len(active) != 1 || active[0] != v.members[2].instance {
		t.Errorf("got %d instances of which %d are given work, want 3 and only the last", len(v.members), len(active))
	}
	if got := v.snapshot().Instances; got != 1 {
		t.Errorf("got %d instances in the statistics, want 1", got)
	}
}

func TestCloseWaitsForRequestsInFlight(t *testing.T) {
	dir := repo(t, map[string]string{"slow/config.pbtxt": oneInput + `parameters { key: "execute_delay_ms" value { string_value: "50" } }`, "slow/1/": ""})
	synctest.Test(t, func(t *testing.T) {
		e, err := Start(t.Context(), Options{Repositories: []string{dir}, LoadThreads: 1, Backends: []backend.Backend{identity.Backend{}}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Acquire("slow", 1)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			r := infer.NewRequest()
			r.Hold(v)
			defer r.Release()
			r.Inputs = append(r.Inputs, in("INPUT0", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
			answered <- v.Infer(t.Context(), r)
		}()
		synctest.Wait()
		begin := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := e.Close(short); err == nil {
			t.Error("Close within 10ms: got no error, want one for the request in flight")
		}
		if got := time.Since(begin); got != 10*time.Millisecond {
			t.Errorf("Close gave up after %v, want exactly 10ms", got)
		}
		if err := <-answered; err != nil {
			t.Errorf("the request in flight: got %v, want no error", err)
		}
		if _, err := e.Acquire("slow", 1); status.CodeOf(err) != status.Unavailable || e.Live() || e.Ready() {
			t.Errorf("while stopping: got %v, live %v, ready %v, want Unavailable and neither", err, e.Live(), e.Ready())
		}
	})
}

func TestStopSendsOffWhatWaitsForCompany(t *testing.T) {
	patient := strings.Replace(batchedInput, "dynamic_batching { }", "dynamic_batching { max_queue_delay_microseconds: 600000000 }", 1)
	e := start(t, repo(t, map[string]string{"m/config.pbtxt": patient, "m/1/": ""}))
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		inferZeros(t, v)
	}()
	for v.sched.(*sched.Batcher).Pending() == 0 {
		runtime.Gosched()
	}
	e.Stop()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Fatal("got no answer 10s after Stop, want one at once: the queue delay is ten minutes")
	}
}

func TestInferDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	e := start(t, repo(t, map[string]string{
		"direct/config.pbtxt": oneInput, "direct/1/": "",
		"batched/config.pbtxt": batchedInput, "batched/1/": "",
	}))
	for _, name := range []string{"direct", "batched"} {
		acquireAndInfer(t, e, name)
		if got := testing.AllocsPerRun(200, func() { acquireAndInfer(t, e, name) }); got != 0 {
			t.Errorf("%s: got %v allocations per request, want 0", name, got)
		}
	}
}

var zeros [8]byte
