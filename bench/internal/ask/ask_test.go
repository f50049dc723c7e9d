package ask

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

func TestAnswersOfOtherQuestionsAreWrong(t *testing.T) {
	q := Question{Model: ONNX("m", 4, ""), Number: 7}
	answer := func(number uint32, spoil int) *inferencepb.ModelInferResponse {
		var raw []byte
		for i := range q.Model.Width {
			v := Question{q.Model, number}.value(i) + 1
			if i == spoil {
				v++
			}
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		return &inferencepb.ModelInferResponse{Id: q.ID(), RawOutputContents: [][]byte{raw}}
	}
	if err := q.checkMessage(answer(7, -1)); err != nil {
		t.Errorf("got %v of the right answer, want none", err)
	}
	for name, m := range map[string]*inferencepb.ModelInferResponse{
		"another question's":      answer(8, -1),
		"the last element is off": answer(7, 3),
		"no output":               {Id: "7"},
		"too short":               {Id: "7", RawOutputContents: [][]byte{{1, 2, 3, 4}}},
		"another id":              {Id: "8", RawOutputContents: answer(7, -1).RawOutputContents},
	} {
		if err := q.checkMessage(m); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: got %v, want a wrong answer", name, err)
		}
	}
}

func TestHTTPAnswersAreCheckedInBothForms(t *testing.T) {
	q := Question{Model: Identity("m", 4), Number: 9}
	plain, err := json.Marshal(wireMessage{ID: "9", Outputs: []wireTensor{{Name: "OUTPUT0", Data: q.numbers()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.checkHTTP("", plain); err != nil {
		t.Errorf("JSON: got %v, want none", err)
	}
	head := `{"id":"9","outputs":[{"name":"OUTPUT0"}]}`
	if err := q.checkHTTP("41", append([]byte(head), q.raw()...)); err != nil {
		t.Errorf("binary: got %v, want none", err)
	}
	for name, bad := range map[string][2]string{
		"no JSON":                 {"", "x"},
		"a head beyond the body":  {"4000", head},
		"no outputs":              {"", `{"id":"9"}`},
		"other numbers":           {"", `{"id":"9","outputs":[{"name":"OUTPUT0","data":[1,2,3,4]}]}`},
		"binary that is too long": {"41", head + string(q.raw()) + "x"},
	} {
		if err := q.checkHTTP(bad[0], []byte(bad[1])); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: got %v, want a wrong answer", name, err)
		}
	}
}
