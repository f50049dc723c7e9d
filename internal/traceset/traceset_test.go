package traceset

import (
	"reflect"
	"testing"

	"shoal/internal/status"
)

func TestModelsFollowTheServerUntilTheyHaveTheirOwn(t *testing.T) {
	var c Control
	rate := func(model, want string) {
		t.Helper()
		if got := c.Settings(model)["trace_rate"]; !reflect.DeepEqual(got, []string{want}) {
			t.Errorf("trace_rate of %q: got %v, want %s", model, got, want)
		}
	}
	update := func(model string, value ...string) {
		t.Helper()
		if _, err := c.Update(model, map[string][]string{"trace_rate": value}); err != nil {
			t.Error(err)
		}
	}
	rate("m", "1000")
	update("", "7")
	rate("m", "7")
	update("m", "5")
	rate("m", "5")
	rate("n", "7")
	update("m")
	rate("m", "7")
	update("")
	rate("", "1000")
	if len(c.models) != 0 {
		t.Errorf("got %v kept, want nothing of models that follow", c.models)
	}
}

func TestBadSettingsChangeNothing(t *testing.T) {
	var c Control
	for _, tt := range []struct {
		name  string
		value []string
		code  status.Code
		want  string
	}{
		{"trace_level", []string{"TIMESTAMPS"}, status.InvalidArgument, "Attempting to set invalid trace setting :trace file name is not given"},
		{"trace_level", []string{"OFF", "TENSORS"}, status.InvalidArgument, "Expect only one trace level 'OFF' is specified"},
		{"trace_file", []string{"/x"}, status.Unsupported, "trace file location can not be updated through network protocol"},
		{"trace_rate", []string{"x"}, status.InvalidArgument, "Unable to parse 'trace_rate', got: x"},
		{"trace_count", []string{"-2"}, status.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"},
		{"trace_count", []string{"99999999999"}, status.InvalidArgument, "Unable to parse 'trace_count', value is out of range [ -2147483648, 2147483647 ], got: 99999999999"},
		{"log_frequency", []string{"-1"}, status.InvalidArgument, "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ], got: -1"},
	} {
		changes := map[string][]string{"trace_rate": {"1"}}
		changes[tt.name] = tt.value
		_, err := c.Update("", changes)
		if status.CodeOf(err) != tt.code || status.Public(err) != tt.want {
			t.Errorf("%s %v: got %v, want %q", tt.name, tt.value, err, tt.want)
		}
	}
	if _, err := c.Update("", map[string][]string{"trace_level": {"NOPE"}, "unknown": {"x"}}); err != nil {
		t.Errorf("what is not known: got %v, want it passed over", err)
	}
	if got := c.Settings(""); !reflect.DeepEqual(got, initial) {
		t.Errorf("got %v, want %v", got, initial)
	}
}
