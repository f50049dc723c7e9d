package load

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestSequenceHoleIsWhatIsFilledIn(t *testing.T) {
	text, err := json.Marshal(SequenceHole())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Trim(string(text), "{}"); got != sequenceHole {
		t.Fatalf("the hole as JSON: got %s, want %s", got, sequenceHole)
	}
	for _, s := range []Sequence{{ID: 1}, {ID: ^uint64(0)}, {ID: 12345, Start: true, End: true}, {ID: ^uint64(0), Start: false, End: false}} {
		got := s.appendJSON(nil)
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

func TestHTTPRequestsCarryTheirSequence(t *testing.T) {
	bodies := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
		w.Header().Set("Content-Length", "0")
	}))
	defer server.Close()
	link := NewHTTPLink(strings.TrimPrefix(server.URL, "http://"), nil)
	hole, _ := json.Marshal(SequenceHole())
	tail := strings.Repeat("x", 100_000)
	m := link.Message("/infer", nil, []byte(`{"parameters":`+string(hole)+`}`+tail))
	conns, _ := link.Conns(1)
	defer conns[0].Close()
	x := Exchange{}
	for _, s := range []Sequence{{ID: 7, Start: true}, {ID: 7}, {ID: 8, End: true}} {
		x.Sequence = s
		if err := conns[0].Do(context.Background(), m, &x); err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(<-bodies, "}}")
		if want := `{"parameters":{` + string(s.appendJSON(nil)); head != want || rest != tail {
			t.Errorf("%v: got %s and %d bytes, want %s and %d", s, head, len(rest), want, len(tail))
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
	if err := proto.Unmarshal(append(Sequence{ID: 1 << 40, Start: true}.appendProto(nil), base...), &got); err != nil {
		t.Fatal(err)
	}
	p := got.GetParameters()
	if p["sequence_id"].GetInt64Param() != 1<<40 || !p["sequence_start"].GetBoolParam() || p["sequence_end"].GetBoolParam() || p["p"].GetStringParam() != "v" || got.GetModelName() != "m" {
		t.Errorf("got %v, want the sequence and what was there", &got)
	}
}
