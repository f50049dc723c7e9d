package perf

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// anyData is data that nothing is expected of.
func anyData() *input.Set { return &input.Set{} }

func TestAnswersAreHeldAgainstTheExpected(t *testing.T) {
	grpcAnswer, err := proto.Marshal(&pb.ModelInferResponse{
		Outputs:           []*pb.ModelInferResponse_InferOutputTensor{{Name: "A", Datatype: "INT32"}, {Name: "B", Datatype: "UINT8"}},
		RawOutputContents: [][]byte{{1, 0, 0, 0}, {7}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const binary = `{"outputs":[{"name":"A","datatype":"INT32","parameters":{"binary_data_size":4}},{"name":"B","datatype":"UINT8","parameters":{"binary_data_size":1}}]}` + "\x01\x00\x00\x00\x07"
	const text = `{"outputs":[{"name":"A","datatype":"INT32","data":[1]},{"name":"B","datatype":"UINT8","data":[7]}]}`
	for _, c := range []struct {
		name, protocol, answer string
		expected               map[string][]byte
		want                   string
	}{
		{"gRPC", result.GRPC, string(grpcAnswer), map[string][]byte{"A": {1, 0, 0, 0}, "B": {7}}, ""},
		{"HTTP, bytes", result.HTTP, binary, map[string][]byte{"A": {1, 0, 0, 0}, "B": {7}}, ""},
		{"HTTP, JSON", result.HTTP, text, map[string][]byte{"A": {1, 0, 0, 0}}, ""},
		{"another value", result.GRPC, string(grpcAnswer), map[string][]byte{"A": {1, 0, 9, 0}}, `output "A" of request 1 differs at byte 2`},
		{"another size", result.HTTP, binary, map[string][]byte{"B": {7, 7}}, `output "B" of request 1 has 1 bytes, want 2`},
		{"none", result.HTTP, text, map[string][]byte{"C": {}}, `got no output "C"`},
		{"no answer at all", result.HTTP, "{", map[string][]byte{"A": {}}, "unexpected EOF"},
		{"too few bytes", result.HTTP, binary[:len(binary)-1], map[string][]byte{"B": {7}}, "of 0 that are left"},
	} {
		s := &Session{settings: Settings{Protocol: c.protocol}, expected: []map[string][]byte{c.expected}}
		err := s.checkAnswer(0, []byte(c.answer))
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, errUnexpected) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
