package square_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/example/square"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func config(parameters map[string]string) *modelpb.ModelConfig {
	cfg := &modelpb.ModelConfig{
		Name:                   "m",
		Input:                  []*modelpb.ModelInput{{Name: "IN", DataType: modelpb.DataType_TYPE_INT32, Dims: []int64{1}}},
		Output:                 []*modelpb.ModelOutput{{Name: "OUT", DataType: modelpb.DataType_TYPE_INT32, Dims: []int64{1}}},
		ModelTransactionPolicy: &modelpb.ModelTransactionPolicy{Decoupled: true},
		Parameters:             make(map[string]*modelpb.ModelParameter),
	}
	for k, v := range parameters {
		cfg.Parameters[k] = &modelpb.ModelParameter{StringValue: v}
	}
	return cfg
}

// run runs a request for n and returns its stream and what was recorded of it
// when the instance is closed.
func run(t *testing.T, cfg *modelpb.ModelConfig, n int32) (*infer.Stream, func() []infer.Delivery) {
	t.Helper()
	m, err := square.Backend{}.Probe(backend.Source{}).Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Start(t.Context(), backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	var got []infer.Delivery
	r := infer.NewRequest()
	r.Rows = 1
	r.Stream = infer.NewStream(1<<20, func(d infer.Delivery) { got = append(got, d) })
	tensorIn := r.AddInput()
	tensorIn.Type, tensorIn.Shape, tensorIn.Data.First = tensor.Int32, tensor.Shape{1}, binary.LittleEndian.AppendUint32(nil, uint32(n))
	s := r.Stream
	if err := in.Run(&infer.Batch{Requests: []*infer.Request{r}}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	return s, func() []infer.Delivery { _ = in.Close(); return got }
}

func TestResponsesFollowTheParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, recorded := run(t, config(map[string]string{
			"CUSTOM_INFER_DELAY_NS": "3000000000", "CUSTOM_OUTPUT_DELAY_NS": "1000000000", "CUSTOM_FAIL_COUNT": "1", "CUSTOM_EMPTY_COUNT": "1",
		}), 3)
		var sent []int32
		for {
			resp, final, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if final {
				break
			}
			if resp.Err != nil {
				sent = append(sent, -1)
				continue
			}
			sent = append(sent, int32(binary.LittleEndian.Uint32(resp.Outputs[0].Data)))
		}
		if diff := cmp.Diff([]int32{3, -1}, sent); diff != "" {
			t.Errorf("responses (-want +got):\n%s", diff)
		}
		type spent struct {
			Outcome       infer.ResponseOutcome
			Infer, Output time.Duration
		}
		var got []spent
		for _, d := range recorded() {
			if d.Outcome == infer.ResponseEmpty {
				d.Output = d.End
			}
			got = append(got, spent{d.Outcome, d.Output.Sub(d.Start), d.End.Sub(d.Output)})
		}
		want := []spent{{infer.ResponseSuccess, 3 * time.Second, time.Second}, {infer.ResponseFail, 3 * time.Second, time.Second}, {infer.ResponseEmpty, 3 * time.Second, 0}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

func TestACancelledRequestStopsAtTheNextResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, recorded := run(t, config(map[string]string{"CUSTOM_INFER_DELAY_NS": "2000000000", "CUSTOM_CANCEL_DELAY_NS": "5000000000"}), 10)
		time.Sleep(3 * time.Second)
		s.Cancel(status.Errorf(status.Cancelled, "gone"))
		got := recorded()
		if len(got) != 3 || got[1].Outcome != infer.ResponseSuccess || got[2].Outcome != infer.ResponseCancel {
			t.Fatalf("got %v, want the response that was being made and then the cancelled one", got)
		}
		if took := got[2].End.Sub(got[2].Start); took != 5*time.Second {
			t.Errorf("cancelling took %v, want 5s", took)
		}
	})
}

func TestOpenRefusesOtherModels(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*modelpb.ModelConfig)
	}{
		{"not decoupled", "decoupled: true", func(c *modelpb.ModelConfig) { c.ModelTransactionPolicy = nil }},
		{"another shape", "dims [ 1 ]", func(c *modelpb.ModelConfig) { c.Input[0].Dims = []int64{2} }},
		{"no number", `parameters.CUSTOM_FAIL_COUNT is "x"`, func(c *modelpb.ModelConfig) {
			c.Parameters["CUSTOM_FAIL_COUNT"] = &modelpb.ModelParameter{StringValue: "x"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(nil)
			c.change(cfg)
			_, err := square.Backend{}.Probe(backend.Source{}).Open(t.Context(), cfg, model.NewSignature(cfg), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
