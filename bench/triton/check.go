package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// The checks make sure that what is measured is an inference: the answer has
// the values that were sent.

func sameJSON(t peer.Tensor) func([]byte) error {
	return func(body []byte) error {
		var answer struct {
			Outputs []struct {
				Name string    `json:"name"`
				Data []float32 `json:"data"`
			} `json:"outputs"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		if len(answer.Outputs) != 1 || answer.Outputs[0].Name != peer.Output || !slices.Equal(answer.Outputs[0].Data, t.Data) {
			return fmt.Errorf("the answer is not the input as %s: %.200s", peer.Output, body)
		}
		return nil
	}
}

func sameBinary(t peer.Tensor) func([]byte) error {
	raw := t.Raw()
	return func(body []byte) error {
		head, found := bytes.CutSuffix(body, raw)
		if !found || !bytes.Contains(head, []byte(peer.Output)) {
			return fmt.Errorf("the answer does not end with the input's bytes: %d bytes, %.200q", len(body), body)
		}
		return nil
	}
}

func sameGRPC(t peer.Tensor) func([]byte) error {
	raw := t.Raw()
	return func(message []byte) error {
		var r inferencepb.ModelInferResponse
		if err := proto.Unmarshal(message, &r); err != nil {
			return err
		}
		if len(r.RawOutputContents) != 1 || !bytes.Equal(r.RawOutputContents[0], raw) {
			return fmt.Errorf("the answer's raw contents are not the input's bytes: %d of them", len(r.RawOutputContents))
		}
		return nil
	}
}
