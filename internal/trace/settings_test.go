package trace

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/status"
)

// shown returns the settings of a model as text.
func shown(t *Tracer, model string) map[string]string {
	all := make(map[string]string)
	for _, s := range t.Settings(model) {
		all[s.Name] = s.Value[0]
		for _, more := range s.Value[1:] {
			all[s.Name] += "+" + more
		}
	}
	return all
}

// traced starts a tracer that writes to a file and closes it with the test.
func traced(t *testing.T, c Config) (*Tracer, string) {
	t.Helper()
	c.File = filepath.Join(t.TempDir(), "trace.json")
	tr, err := Start(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tr, c.File
}

func TestModelsFollowTheServerUntilTheyHaveTheirOwn(t *testing.T) {
	tr := Off()
	rate := func(model, want string) {
		t.Helper()
		if got := shown(tr, model)["trace_rate"]; got != want {
			t.Errorf("trace_rate of %q: got %v, want %s", model, got, want)
		}
	}
	update := func(model string, value ...string) {
		t.Helper()
		if _, err := tr.Update(model, map[string][]string{"trace_rate": value}); err != nil {
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
	if got := tr.state.Load().models; len(got) != 0 {
		t.Errorf("got %v kept, want nothing of models that follow", got)
	}
}

func TestBadSettingsChangeNothing(t *testing.T) {
	tr := Off()
	before := shown(tr, "")
	for _, tt := range []struct {
		name  string
		value []string
		code  status.Code
		want  string
	}{
		{"trace_level", []string{"TIMESTAMPS"}, status.InvalidArgument, "Attempting to set invalid trace setting :trace file name is not given"},
		{"trace_rate", []string{"1", "2"}, status.InvalidArgument, "expect only 1 value for 'trace_rate'"},
		{"trace_level", []string{"OFF", "TENSORS"}, status.InvalidArgument, "Expect only one trace level 'OFF' is specified"},
		{"trace_file", []string{"/x"}, status.Unsupported, "trace file location can not be updated through network protocol"},
		{"trace_rate", []string{"x"}, status.InvalidArgument, "Unable to parse 'trace_rate', got: x"},
		{"trace_count", []string{"-2"}, status.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"},
		{"trace_count", []string{"99999999999"}, status.InvalidArgument, "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 99999999999"},
		{"log_frequency", []string{"-1"}, status.InvalidArgument, "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ], got: -1"},
	} {
		changes := map[string][]string{"trace_rate": {"1"}}
		changes[tt.name] = tt.value
		_, err := tr.Update("", changes)
		if status.CodeOf(err) != tt.code || status.Public(err) != tt.want {
			t.Errorf("%s %v: got %v, want %q", tt.name, tt.value, err, tt.want)
		}
	}
	if _, err := tr.Update("", map[string][]string{"trace_level": {"NOPE"}, "unknown": {"x"}}); err != nil {
		t.Errorf("what is not known: got %v, want it passed over", err)
	}
	if diff := cmp.Diff(before, shown(tr, "")); diff != "" {
		t.Errorf("settings after bad changes (-before +after):\n%s", diff)
	}
}

func TestALevelNeedsARate(t *testing.T) {
	c := DefaultConfig()
	c.Level, c.Rate = Timestamps, 1
	tr, _ := traced(t, c)
	defer tr.Close()
	update := func(model, name, value, want string) {
		t.Helper()
		_, err := tr.Update(model, map[string][]string{name: {value}})
		if got := status.Public(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s=%s: got %v, want %q", name, value, err, want)
		}
	}
	const refused = "Attempting to set invalid trace setting :sample rate must be non-zero"
	update("", "trace_rate", "0", refused)
	update("m", "trace_level", "TENSORS", "")
	update("", "trace_level", "OFF", "")
	update("", "trace_rate", "0", refused) // the model would follow it
	update("m", "trace_rate", "3", "")
	update("", "trace_rate", "0", "")
	if got := shown(tr, "m"); got["trace_rate"] != "3" || got["trace_level"] != "TENSORS" || !tr.On() {
		t.Errorf("got %v and on %v, want the model's own settings to trace", got, tr.On())
	}
	update("m", "trace_level", "OFF", "")
	if tr.On() {
		t.Error("got on, want off: nothing is traced")
	}
}
