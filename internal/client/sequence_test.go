package client

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestSequenceHoleIsWhatIsFilledIn(t *testing.T) {
	text, err := json.Marshal(sequenceRoom())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Trim(string(text), "{}"); got != sequenceHole {
		t.Fatalf("the hole as JSON: got %s, want %s", got, sequenceHole)
	}
	for _, s := range []Sequence{{ID: 1}, {ID: ^uint64(0)}, {ID: 12345, Start: true, End: true}, {ID: ^uint64(0), Start: false, End: false}} {
		got := s.AppendJSON(nil)
		if len(got) != len(sequenceHole) {
			t.Errorf("%v: got %d bytes, want %d", s, len(got), len(sequenceHole))
		}
		var read struct {
			ID    uint64 `json:"sequence_id"`
			Start bool   `json:"sequence_start"`
			End   bool   `json:"sequence_end"`
		}
		if err := json.Unmarshal([]byte("{"+string(got)+"}"), &read); err != nil || Sequence(read) != s {
			t.Errorf("%v: read back %v, %v", s, read, err)
		}
	}
}

func TestSequenceOfAMessageIsReadByProtobuf(t *testing.T) {
	base, err := proto.Marshal(&inferencepb.ModelInferRequest{ModelName: "m", Parameters: map[string]*inferencepb.InferParameter{
		"p": {ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: "v"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got inferencepb.ModelInferRequest
	if err := proto.Unmarshal(append(Sequence{ID: 1 << 40, Start: true}.AppendProto(nil), base...), &got); err != nil {
		t.Fatal(err)
	}
	p := got.GetParameters()
	if p["sequence_id"].GetInt64Param() != 1<<40 || !p["sequence_start"].GetBoolParam() || p["sequence_end"].GetBoolParam() || p["p"].GetStringParam() != "v" || got.GetModelName() != "m" {
		t.Errorf("got %v, want the sequence and what was there", &got)
	}
}
