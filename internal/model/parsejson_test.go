package model

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func TestParseJSONSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ text, want string }{
		{`{"max_batch_size": 4, "instance_group": [{"count": 2, "kind": "KIND_CPU"}], "dynamic_batching": {"max_queue_delay_microseconds": 500}}`, ""},
		{`{"maxBatchSize": 4}`, ""},
		{`{"colour": 1}`, `unknown field "colour"`},
		{`{"max_batch_size": "many"}`, "maxBatchSize"},
		{`{nope`, "syntax error"},
		{``, "syntax error"},
		{`[]`, "unexpected token"},
		{`{"instance_group": [{"kind": "KIND_NONE"}]}`, "KIND_NONE"},
	}
	for _, tt := range tests {
		cfg, err := ParseJSON([]byte(tt.text))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: got %v, want none", tt.text, err)
		case tt.want == "" && cfg.GetMaxBatchSize() != 4:
			t.Errorf("%s: got %v", tt.text, cfg)
		case tt.want != "" && (!strings.Contains(status.Public(err), tt.want) || strings.HasPrefix(status.Public(err), "proto") || status.CodeOf(err) != status.InvalidArgument):
			t.Errorf("%s: got %v, want %q", tt.text, err, tt.want)
		}
	}
}

// FuzzParseJSON reads any text; what can be read comes back the same when it is
// printed.
func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"name": "m", "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [1, -1]}], "parameters": {"k": {"string_value": "v"}}}`))
	f.Add([]byte(`{"ensemble_scheduling": {"step": [{"input_map": {"a": "b"}}]}, "version_policy": {"specific": {"versions": ["3", 4]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := ParseJSON(text)
		if err != nil {
			return
		}
		var again *modelpb.ModelConfig
		if again, err = ParseJSON(JSON(cfg)); err != nil || !proto.Equal(cfg, again) {
			t.Errorf("printed and read again: got %v, %v, want %v", again, err, cfg)
		}
	})
}
