package perf

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/perf/input"
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
		{"gRPC", GRPC, string(grpcAnswer), map[string][]byte{"A": {1, 0, 0, 0}, "B": {7}}, ""},
		{"HTTP, bytes", HTTP, binary, map[string][]byte{"A": {1, 0, 0, 0}, "B": {7}}, ""},
		{"HTTP, JSON", HTTP, text, map[string][]byte{"A": {1, 0, 0, 0}}, ""},
		{"another value", GRPC, string(grpcAnswer), map[string][]byte{"A": {1, 0, 9, 0}}, `output "A" of request 1 differs at byte 2`},
		{"another size", HTTP, binary, map[string][]byte{"B": {7, 7}}, `output "B" of request 1 has 1 bytes, want 2`},
		{"none", HTTP, text, map[string][]byte{"C": {}}, `got no output "C"`},
		{"no answer at all", HTTP, "{", map[string][]byte{"A": {}}, "unexpected EOF"},
		{"too few bytes", HTTP, binary[:len(binary)-1], map[string][]byte{"B": {7}}, "of 0 that are left"},
	} {
		s := &Session{settings: Settings{Protocol: c.protocol}, expected: []map[string][]byte{c.expected}}
		err := s.checkAnswer(0, []byte(c.answer))
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, errUnexpected) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestFirstUnexpectedAnswerEndsTheRun(t *testing.T) {
	var h health
	h.tick(1, 100)
	h.fail(failure{cause: "the answer is not the expected one: x", fault: true, fatal: true})
	h.tick(2, 100)
	if !strings.Contains(h.why, "not the expected one") {
		t.Errorf("got %q, want the run ended by it", h.why)
	}
}
