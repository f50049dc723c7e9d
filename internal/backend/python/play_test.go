package python

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// playConfig is the configuration of the handler play: IN becomes OUT.
func playConfig() *modelpb.ModelConfig {
	return &modelpb.ModelConfig{
		Name: "play", MaxBatchSize: 8,
		Input:  []*modelpb.ModelInput{{Name: "IN", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}}},
		Output: []*modelpb.ModelOutput{{Name: "OUT", DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}}},
	}
}

func startPlay(t *testing.T, o Options) *instance {
	t.Helper()
	return startInstance(t, newBackend(t, o), "play", playConfig())
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// play returns a request with rows of three numbers, and what is to be done.
func play(do string, rows int, first float32) *infer.Request {
	r := infer.NewRequest()
	r.Rows = rows
	input := r.AddInput()
	input.Name, input.Type, input.Shape = "IN", tensor.FP32, tensor.Shape{int64(rows), 3}
	for i := range 3 * rows {
		input.Data.First = append(input.Data.First, floats(first+float32(i))...)
	}
	if do != "" {
		r.Params = append(r.Params, infer.Param{Name: "do", Kind: infer.ParamString, String: do})
	}
	return r
}

func batchOf(requests ...*infer.Request) *infer.Batch {
	b := &infer.Batch{Requests: requests}
	for _, r := range requests {
		b.Rows += r.Rows
	}
	return b
}

// sameAsInput checks that a request has its own input as its answer.
func sameAsInput(t *testing.T, r *infer.Request) {
	t.Helper()
	if r.Err != nil {
		t.Errorf("got error %v, want an answer", r.Err)
		return
	}
	if len(r.Response.Outputs) != 1 {
		t.Errorf("got %d outputs, want 1", len(r.Response.Outputs))
		return
	}
	out, in := r.Response.Outputs[0], r.Inputs[0]
	if !bytes.Equal(out.Data, in.Data.First) || !out.Shape.Equal(in.Shape) {
		t.Errorf("got %v of shape %s, want %v of shape %s", out.Data, out.Shape, in.Data.First, in.Shape)
	}
}

func params(r *infer.Request) map[string]any {
	m := make(map[string]any)
	for _, p := range r.Response.Params {
		switch p.Kind {
		case infer.ParamString:
			m[p.Name] = p.String
		case infer.ParamInt:
			m[p.Name] = p.Int
		case infer.ParamFloat:
			m[p.Name] = p.Float
		case infer.ParamBool:
			m[p.Name] = p.Bool
		}
	}
	return m
}

func TestAnAnswerForTheWholeBatchIsCutByRows(t *testing.T) {
	in := startPlay(t, Options{})
	requests := []*infer.Request{play("whole", 1, 0), play("", 3, 10), play("", 2, 20)}
	if err := in.Run(batchOf(requests...)); err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		sameAsInput(t, r)
		if got := params(r)["rows"]; got != int64(6) {
			t.Errorf("parameter rows: got %v, want 6", got)
		}
		r.Release()
	}
}

func TestHandlersSeeWhatARequestHasBesidesTensors(t *testing.T) {
	in := startPlay(t, Options{})
	full := play("tell", 2, 0)
	full.ID, full.Priority, full.Timeout = "héllo", 7, 1500*time.Microsecond
	full.Sequence = infer.Sequence{ID: 1<<64 - 1, Start: true, End: true}
	full.Outputs = []infer.Wanted{{Name: "OUT"}}
	full.Params = append(full.Params,
		infer.Param{Name: "i", Kind: infer.ParamInt, Int: -5}, infer.Param{Name: "f", Kind: infer.ParamFloat, Float: 0.5},
		infer.Param{Name: "b", Kind: infer.ParamBool, Bool: true}, infer.Param{Name: "s", String: "text"},
		infer.Param{Name: "u", Kind: infer.ParamUint, Uint: 1 << 62})
	named := play("", 1, 0)
	named.Sequence.StringID = "a-b-c"
	plain := play("", 1, 0)
	if err := in.Run(batchOf(full, named, plain)); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"id": "héllo", "priority": int64(7), "timeout": int64(1500), "flags": int64(3), "rows": int64(2), "wanted": "OUT", "inputs": "IN",
		"p_do": "tell", "p_i": int64(-5), "p_f": 0.5, "p_b": true, "p_s": "text", "p_u": int64(1 << 62),
	}
	if full.Err == nil {
		t.Error("got an answer with a parameter of 64 bits without a sign, want an error")
	} else if want := "parameter 'correlation' is 18446744073709551615, which does not fit 64 bits"; !strings.Contains(status.Public(full.Err), want) {
		t.Errorf("got %v, want %s", full.Err, want)
	}
	full2 := play("tell", 2, 0)
	full2.ID, full2.Priority, full2.Timeout, full2.Params, full2.Outputs = full.ID, full.Priority, full.Timeout, full.Params, full.Outputs
	full2.Sequence = infer.Sequence{ID: 42, Start: true, End: true}
	want["correlation"] = int64(42)
	if err := in.Run(batchOf(full2, named, plain)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, params(full2)); diff != "" {
		t.Error(diff)
	}
	if got := params(named)["correlation"]; got != "a-b-c" {
		t.Errorf("correlation id: got %v, want a-b-c", got)
	}
	if got := params(plain); got["id"] != "" || got["correlation"] != int64(0) || got["wanted"] != "OUT" {
		t.Errorf("a plain request: got %v, want nothing said", got)
	}
}

func TestFaultsOfAHandlerFailTheRequestsAndNotTheWorker(t *testing.T) {
	in := startPlay(t, Options{Config: map[string]string{"max-result-byte-size": "1000000"}})
	before := in.pid()
	for _, c := range []struct {
		do   string
		want string
	}{
		{"integers", "model 'play': output 'OUT' has data type TYPE_INT64, want TYPE_FP32; the model's code or the data_type in its configuration is wrong"},
		{"shape", "model 'play': output 'OUT' has shape [2,2,2], want [2,-1] (-1 is any size); the model's code or the dims in its configuration are wrong"},
		{"few_rows", "model 'play': output 'OUT' has shape [3,3], want [2,-1] (-1 is any size); the model's code or the dims in its configuration are wrong"},
		{"name", "ResultError: output 'NOWHERE' is not one of the model's outputs: 'OUT'"},
		{"twice_given", "model 'play': output 'OUT' is given twice"},
		{"dtype", "ResultError: output 'OUT' is an array of complex64, which inference answers cannot carry; convert it to FP32"},
		{"large", "ResultError: output 'OUT' makes the result of this batch 33554496 bytes, and at most 1000000 are allowed; raise it with --backend-config=python,max-result-byte-size=N"},
		{"silent", "the model's execute returned without an answer to this request"},
		{"leave", "SystemExit: 4"},
	} {
		r := play(c.do, 2, 1)
		if err := in.Run(batchOf(r)); err != nil {
			t.Errorf("%s: the batch failed: %v", c.do, err)
		}
		if r.Err == nil || status.Public(r.Err) != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.do, r.Err, c.want)
		}
		r.Release()
	}
	if after := in.pid(); after != before {
		t.Errorf("got worker %d, want %d to live on", after, before)
	}
}

func TestARequestMayFailAlone(t *testing.T) {
	in := startPlay(t, Options{})
	requests := []*infer.Request{play("error", 1, 0), play("", 1, 3), play("", 1, 6)}
	if err := in.Run(batchOf(requests...)); err != nil {
		t.Fatal(err)
	}
	sameAsInput(t, requests[0])
	sameAsInput(t, requests[2])
	if err := requests[1].Err; err == nil || status.Public(err) != "number 1 is odd" || status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v, want number 1 is odd, with its code", err)
	}
}

func TestAnExceptionFailsThoseWithoutAnAnswer(t *testing.T) {
	in := startPlay(t, Options{})
	requests := []*infer.Request{play("exception", 1, 0), play("", 1, 3)}
	if err := in.Run(batchOf(requests...)); err != nil {
		t.Fatal(err)
	}
	sameAsInput(t, requests[0])
	if err := requests[1].Err; err == nil || !strings.HasPrefix(status.Public(err), "ValueError: it is\nnot my day") {
		t.Errorf("got %v, want the exception", err)
	}
}

func TestInputsThatAHandlerKeepsDoNotChange(t *testing.T) {
	in := startPlay(t, Options{})
	for i := range 6 {
		r := play("keep", 1, float32(100*i)) // it keeps the first and the third number
		if err := in.Run(batchOf(r)); err != nil {
			t.Fatal(err)
		}
		sameAsInput(t, r)
		r.Release()
	}
	r := play("kept_sum", 1, 0)
	defer r.Release()
	if err := in.Run(batchOf(r)); err != nil {
		t.Fatal(err)
	}
	if got, want := params(r)["kept"], "2.0,202.0,402.0,602.0,802.0,1002.0"; got != want {
		t.Errorf("sums of what was kept: got %v, want %v", got, want)
	}
}

func TestAWorkerThatEndsFailsItsBatchAndComesBack(t *testing.T) {
	for _, c := range []struct {
		do, want string
	}{
		{"die", `model "play": worker play_0_0 ended while it ran this batch: ended with exit code 3; the last line of its stderr: these are my last words`},
		{"segfault", "killed by signal 11 (SIGSEGV)"},
		{"hang_up_and_stay", "the worker closed its connection to the server"},
		{"garbage", "the worker's answer cannot be read"},
		{"early", "the worker's answer cannot be read"},
	} {
		t.Run(c.do, func(t *testing.T) {
			in := startPlay(t, Options{})
			held := play("", 1, 50)
			if err := in.Run(batchOf(held)); err != nil {
				t.Fatal(err)
			}
			r := play(c.do, 1, 0)
			err := in.Run(batchOf(r))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want ... %s", err, c.want)
			}
			r.Release()
			next := play("", 2, 5)
			if err := in.Run(batchOf(next)); err != nil {
				t.Fatalf("after it: %v", err)
			}
			sameAsInput(t, next)
			sameAsInput(t, held) // an answer of the first worker, in memory of its own
			next.Release()
			held.Release()
		})
	}
}

func TestABatchThatADeadWorkerNeverSawIsRunByTheNext(t *testing.T) {
	in := startPlay(t, Options{})
	for i := range 3 {
		last := play("hang_up", 1, float32(i)) // the worker answers, and ends because it cannot ring
		if err := in.Run(batchOf(last)); err != nil {
			t.Fatal(err)
		}
		sameAsInput(t, last)
		last.Release()
		next := play("", 1, 7)
		if err := in.Run(batchOf(next)); err != nil {
			t.Fatal(err)
		}
		sameAsInput(t, next)
		next.Release()
		if err := syscall.Kill(in.pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAHungWorkerIsKilledAfterTheExecutionTimeout(t *testing.T) {
	in := startPlay(t, Options{Config: map[string]string{"execution-timeout-seconds": "0.2"}})
	r := play("sleep", 1, 0)
	defer r.Release()
	err := in.Run(batchOf(r))
	if err == nil || !strings.Contains(status.Public(err), "execution timeout of 200ms") {
		t.Errorf("got %v, want the timeout", err)
	}
}
