package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
)

// The files are answers of the original server. Two things in them were
// changed: the keys of maps are sorted, where the original has the order of a
// hash table, and ensembles have the field that its later releases added.
func TestJSONIsLaidOutAsRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/json/*.json")
	if err != nil || len(files) != 6 {
		t.Fatalf("recorded answers: got %v, %v, want 6", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg := &modelpb.ModelConfig{}
			if err := protojson.Unmarshal(want, cfg); err != nil {
				t.Fatal(err)
			}
			if got := string(JSON(cfg)); got != string(want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestJSONIsReadBackAsItWas compares with the library's own reader, on
// configurations that between them have nearly every field.
func TestJSONIsReadBackAsItWas(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.pbtxt")
	if err != nil || len(files) == 0 {
		t.Fatalf("configurations: got %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Parse(text, file)
		if err != nil {
			t.Fatal(err)
		}
		got := &modelpb.ModelConfig{}
		if err := protojson.Unmarshal(JSON(want), got); err != nil {
			t.Errorf("%s: got %v, want JSON that can be read", file, err)
		} else if !proto.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", file, got, want)
		}
	}
}

func TestJSONValues(t *testing.T) {
	for _, c := range []struct {
		name, text, path string
		want             any
	}{
		{"letters that need escapes", `name: "a\"\\\n\r\t\b\f\001<é/"`, "name", "a\"\\\n\r\t\b\f\x01<é/"},
		{"an enum value without a name", `input { data_type: 77 }`, "input.0.data_type", 77.0},
		{"64-bit integers are numbers", `dynamic_batching { priority_levels: 3 }`, "dynamic_batching.priority_levels", 3.0},
		{"keys of maps are strings", `dynamic_batching { priority_queue_policy { key: 2 value { max_queue_size: 3 } } }`, "dynamic_batching.priority_queue_policy.2.max_queue_size", 3.0},
		{"a set member of a oneof that is false", `model_warmup { inputs { key: "a" value { zero_data: false } } }`, "model_warmup.0.inputs.a.zero_data", false},
		{"a member of a oneof that is not set", `model_warmup { inputs { key: "a" value { } } }`, "model_warmup.0.inputs.a.zero_data", nil},
		{"a message that is not set", ``, "optimization", nil},
		{"an empty message", `version_policy { all {} }`, "version_policy.all", map[string]any{}},
		{"a float has no more digits than it needs", `sequence_batching { direct { minimum_slot_utilization: 0.1 } }`, "sequence_batching.direct.minimum_slot_utilization", 0.1},
		{"a float that is no number", `model_metrics { metric_control { histogram_options { buckets: [ nan, inf, -inf ] } } }`, "model_metrics.metric_control.0.histogram_options.buckets", []any{"NaN", "Infinity", "-Infinity"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(c.text), "c")
			if err != nil {
				t.Fatal(err)
			}
			if got := at(t, JSON(cfg), c.path); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: got %#v, want %#v", c.path, got, c.want)
			}
		})
	}
}

func TestJSONOfLargeIntegersIsExact(t *testing.T) {
	cfg := &modelpb.ModelConfig{Input: []*modelpb.ModelInput{{Dims: []int64{math.MaxInt64, math.MinInt64}}}}
	var got struct{ Input []struct{ Dims []int64 } }
	if err := json.Unmarshal(JSON(cfg), &got); err != nil {
		t.Fatal(err)
	}
	if d := got.Input[0].Dims; d[0] != math.MaxInt64 || d[1] != math.MinInt64 {
		t.Errorf("dims: got %v, want %v", d, cfg.Input[0].Dims)
	}
}
