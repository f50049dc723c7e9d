package repeat_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/example/repeat"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func config() *modelpb.ModelConfig {
	input := func(name string, t modelpb.DataType, dim int64) *modelpb.ModelInput {
		return &modelpb.ModelInput{Name: name, DataType: t, Dims: []int64{dim}}
	}
	return &modelpb.ModelConfig{
		Name:                   "m",
		Input:                  []*modelpb.ModelInput{input("IN", modelpb.DataType_TYPE_INT32, -1), input("DELAY", modelpb.DataType_TYPE_UINT32, -1), input("WAIT", modelpb.DataType_TYPE_UINT32, 1)},
		Output:                 []*modelpb.ModelOutput{{Name: "OUT", DataType: modelpb.DataType_TYPE_INT32, Dims: []int64{1}}, {Name: "IDX", DataType: modelpb.DataType_TYPE_UINT32, Dims: []int64{1}}},
		ModelTransactionPolicy: &modelpb.ModelTransactionPolicy{Decoupled: true},
	}
}

func open(t *testing.T, cfg *modelpb.ModelConfig) backend.Instance {
	t.Helper()
	m, err := repeat.Backend{}.Probe(backend.Source{}).Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Start(t.Context(), backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// ask returns a request with those inputs.
func ask(inputs ...[]uint32) *infer.Request {
	r := infer.NewRequest()
	r.Stream = infer.NewStream(1<<20, func(infer.Delivery) {})
	for i, values := range inputs {
		in := r.AddInput()
		in.Index, in.Type, in.Shape = i, tensor.Uint32, tensor.Shape{int64(len(values))}
		for _, v := range values {
			in.Data.First = binary.LittleEndian.AppendUint32(in.Data.First, v)
		}
	}
	return r
}

func TestElementsComeOneByOneAfterTheirDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := open(t, config())
		r := ask([]uint32{7, 8}, []uint32{100, 50}, []uint32{120})
		s, begin := r.Stream, time.Now()
		if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}}); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		if took := time.Since(begin); took != 120*time.Millisecond {
			t.Errorf("Run took %v, want the 120ms of WAIT", took)
		}
		r.Release() // the responses need nothing of it
		var got [][2]uint32
		for {
			resp, final, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if final {
				break
			}
			got = append(got, [2]uint32{binary.LittleEndian.Uint32(resp.Outputs[0].Data), binary.LittleEndian.Uint32(resp.Outputs[1].Data)})
		}
		if diff := cmp.Diff([][2]uint32{{7, 0}, {8, 1}}, got); diff != "" {
			t.Errorf("OUT and IDX (-want +got):\n%s", diff)
		}
		if took := time.Since(begin); took != 150*time.Millisecond {
			t.Errorf("the end came after %v, want 150ms", took)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAClientThatIsGoneEndsTheRunAndTheResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := open(t, config())
		r := ask([]uint32{7}, []uint32{3_600_000}, []uint32{3_600_000})
		begin := time.Now()
		time.AfterFunc(time.Second, func() { r.Stream.Cancel(status.Errorf(status.Cancelled, "gone")) })
		if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}}); err != nil {
			t.Fatal(err)
		}
		_ = in.Close() // waits for the sender
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
	})
}

func TestInputsThatDoNotFitFailTheRequest(t *testing.T) {
	in := open(t, config())
	r := ask([]uint32{1, 2}, []uint32{0}, []uint32{0})
	if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}}); err != nil {
		t.Fatal(err)
	}
	if status.CodeOf(r.Err) != status.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", r.Err)
	}
}

func TestOpenRefusesOtherModels(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*modelpb.ModelConfig)
	}{
		{"not decoupled", "decoupled: true", func(c *modelpb.ModelConfig) { c.ModelTransactionPolicy = nil }},
		{"batching", "max_batch_size == 0", func(c *modelpb.ModelConfig) { c.MaxBatchSize = 8 }},
		{"another type", "'DELAY' of TYPE_UINT32", func(c *modelpb.ModelConfig) { c.Input[1].DataType = modelpb.DataType_TYPE_FP32 }},
		{"another output", "'IDX' of TYPE_UINT32", func(c *modelpb.ModelConfig) { c.Output[1].Name = "X" }},
		{"one more output", "got 3 and 3", func(c *modelpb.ModelConfig) { c.Output = append(c.Output, &modelpb.ModelOutput{Name: "X"}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			c.change(cfg)
			_, err := repeat.Backend{}.Probe(backend.Source{}).Open(t.Context(), cfg, model.NewSignature(cfg), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
