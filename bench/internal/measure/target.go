package measure

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"shoal/bench/internal/peer"
	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// Binary returns a target that sends the model's inputs as bytes over HTTP and
// checks that an answer is numbers.
func Binary(address string, m peer.Model) (load.Target, error) {
	path, header, body, err := m.HTTP(client.Binary)
	return load.NewHTTP(address, path, header, body, numbers(m.Answer)), err
}

// GRPC returns a target that sends the model's inputs over gRPC and checks that an
// answer has as many bytes as the model's outputs.
func GRPC(address string, m peer.Model) (load.Target, error) {
	request, err := m.GRPC()
	if err != nil {
		return nil, err
	}
	return load.NewH2(address, request, func(message []byte) error {
		var answer inferencepb.ModelInferResponse
		if err := proto.Unmarshal(message, &answer); err != nil {
			return err
		}
		n := 0
		for _, raw := range answer.GetRawOutputContents() {
			n += len(raw)
		}
		if n != 4*m.Answer {
			return fmt.Errorf("the answer has %d bytes of outputs, want %d", n, 4*m.Answer)
		}
		return nil
	})
}

// numbers returns a check that an answer ends with n finite numbers after its
// JSON.
func numbers(n int) func(body []byte) error {
	return func(body []byte) error {
		if len(body) <= 4*n || body[len(body)-4*n-1] != '}' {
			return fmt.Errorf("the answer does not end with %d numbers: %d bytes, %.200q", n, len(body), body)
		}
		for raw := body[len(body)-4*n:]; len(raw) > 0; raw = raw[4:] {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("the answer has %v among its numbers", v)
			}
		}
		return nil
	}
}
