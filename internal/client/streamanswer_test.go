package client

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func FuzzParseStreamAnswer(f *testing.F) {
	for _, m := range []*inferencepb.ModelStreamInferResponse{
		{ErrorMessage: "no"},
		{InferResponse: &inferencepb.ModelInferResponse{
			Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: "OUT"}},
			Parameters: map[string]*inferencepb.InferParameter{
				"other":        {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
				finalParameter: {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
			},
		}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, _, err := ParseStreamAnswer(data)
		var m inferencepb.ModelStreamInferResponse
		if err != nil || proto.Unmarshal(data, &m) != nil {
			return
		}
		if again, err := proto.Marshal(&m); err == nil { // in the one form that servers write
			a, _, err = ParseStreamAnswer(again)
			want := m.InferResponse.GetParameters()[finalParameter].GetBoolParam()
			if err != nil || a.Fault != m.ErrorMessage || a.Final != want || a.Empty != (want && len(m.InferResponse.GetOutputs()) == 0) {
				t.Errorf("got %+v, %v, want what is in %v", a, err, &m)
			}
		}
	})
}
