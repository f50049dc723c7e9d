package main

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestChecksTakeTheInputAndNothingElse(t *testing.T) {
	tensor := peer.Tensor{Name: peer.Input, Shape: []int64{1, 2}, Data: []float32{0.5, 0.1}}
	grpc := func(raw []byte) string {
		b, err := proto.Marshal(&inferencepb.ModelInferResponse{RawOutputContents: [][]byte{raw}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	wrong := make([]byte, 8)
	tests := []struct {
		name   string
		check  func([]byte) error
		answer string
		good   bool
	}{
		{"JSON with the input", sameJSON(tensor), `{"outputs":[{"name":"OUTPUT0","data":[0.5,0.10000000149011612]}]}`, true},
		{"JSON with other numbers", sameJSON(tensor), `{"outputs":[{"name":"OUTPUT0","data":[0.5,0.2]}]}`, false},
		{"JSON of another output", sameJSON(tensor), `{"outputs":[{"name":"X","data":[0.5,0.1]}]}`, false},
		{"not JSON", sameJSON(tensor), `<html>`, false},
		{"bytes of the input", sameBinary(tensor), `{"outputs":[{"name":"OUTPUT0"}]}` + string(tensor.Raw()), true},
		{"other bytes", sameBinary(tensor), `{"outputs":[{"name":"OUTPUT0"}]}` + string(wrong), false},
		{"a message with the input", sameGRPC(tensor), grpc(tensor.Raw()), true},
		{"a message with other bytes", sameGRPC(tensor), grpc(wrong), false},
		{"not a message", sameGRPC(tensor), "\xff", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.check([]byte(tt.answer)); (err == nil) != tt.good {
				t.Errorf("got %v, want good %v", err, tt.good)
			}
		})
	}
}
