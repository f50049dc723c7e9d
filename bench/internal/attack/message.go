package attack

import (
	"google.golang.org/protobuf/proto"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// Message returns an encoded ModelInferRequest to the model with so many FP32
// elements, all zero.
func Message(model string, elements int) []byte {
	return marshal(&inferencepb.ModelInferRequest{
		ModelName:        model,
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: peer.Input, Datatype: "FP32", Shape: []int64{1, int64(elements)}}},
		RawInputContents: [][]byte{make([]byte, 4*elements)},
	})
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}
