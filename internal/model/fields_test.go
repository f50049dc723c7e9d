package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func TestIgnoredNamesWhatIsSet(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", `name: "m" max_batch_size: 8 instance_group { count: 2 }`, nil},
		{"a switch that is on", `optimization { eager_batching: true }`, []string{"optimization.eager_batching"}},
		{"a switch that is off", `optimization { eager_batching: false } model_transaction_policy { }`, nil},
		{"only the groups that set it", `instance_group [ { }, { passive: true host_policy: "x" } ]`, []string{"instance_group[1].host_policy"}},
		{"a part of a message that is acted on", `optimization { graph { level: 1 } cuda { graphs: true graph_spec { graph_lower_bound { batch_size: 1 } } } }`, []string{"optimization.cuda.graph_spec[0].graph_lower_bound"}},
		{"a map", `cc_model_filenames { key: "a" value: "b" }`, []string{"cc_model_filenames"}},
		{"warm-up", `model_warmup { name: "w" }`, nil},
		{"what is refused is not only warned about", `sequence_batching { }`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, line := range Ignored(config(t, c.text)) {
				path, text, _ := strings.Cut(line, ": ")
				if text == "" {
					t.Errorf("%s: got no text, want what does not happen", path)
				}
				got = append(got, path)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Ignored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefuseWhatWouldBeServedWrongly(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // parts of the error; none means no error
	}{
		{"nothing", `name: "m" dynamic_batching { } response_cache { enable: true } model_warmup { name: "w" } optimization { cuda { graphs: true } }`, nil},
		{"sequences", `name: "m" sequence_batching { }`, []string{"model 'm'", "sequence_batching: ", "no state", "remove it"}},
		{"agents", `name: "m" model_repository_agents { agents { name: "checksum" } }`, []string{"model_repository_agents: ", "do their work beforehand"}},
		{"other code", `name: "m" backend: "onnxruntime" runtime: "libmine.so"`, []string{"runtime: "}},
		{"the code that Shoal's own stands for", `name: "m" backend: "onnxruntime" runtime: "libtriton_onnxruntime.so"`, nil},
		{"several at once", `name: "m" sequence_batching { } model_repository_agents { agents { } }`, []string{"sequence_batching: ", "model_repository_agents: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Refuse(config(t, c.text))
			if len(c.want) == 0 {
				if err != nil {
					t.Errorf("got %v, want none", err)
				}
				return
			}
			if status.CodeOf(err) != status.Unsupported {
				t.Fatalf("got %v, want code Unsupported", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want %q in it", err, part)
				}
			}
		})
	}
}

// TestEveryFieldIsDecidedOn keeps a new field of ModelConfig from being dropped
// without a word: the table must say what becomes of it.
func TestEveryFieldIsDecidedOn(t *testing.T) {
	decided := make(map[string]field)
	for _, f := range fields {
		if _, twice := decided[f.path]; twice {
			t.Errorf("%s: got two decisions, want one", f.path)
		}
		if (f.fate != acted) != (f.text != "") {
			t.Errorf("%s: got text %q, want one exactly if it is not acted on", f.path, f.text)
		}
		decided[f.path] = f
	}
	var seen []string
	var walk func(desc protoreflect.MessageDescriptor, prefix string)
	walk = func(desc protoreflect.MessageDescriptor, prefix string) {
		for i := range desc.Fields().Len() {
			fd := desc.Fields().Get(i)
			path := prefix + fd.TextName()
			switch _, ok := decided[path]; {
			case ok:
				seen = append(seen, path)
			case fd.Message() != nil && !fd.IsMap() && fd.Message().Fields().Len() > 0:
				walk(fd.Message(), path+".")
			default:
				t.Errorf("%s: got no decision, want it acted on, ignored or refused", path)
			}
		}
	}
	walk((&modelpb.ModelConfig{}).ProtoReflect().Descriptor(), "")
	for path, f := range decided {
		if !slices.Contains(seen, path) {
			t.Errorf("%s: got a decision about a field that is not there or is covered already", path)
		}
		// Messages that are acted on are decided on part by part, so that a new
		// part does not go unnoticed.
		if fd := fieldAt(path); f.fate == acted && fd.Message() != nil && !fd.IsMap() && fd.Message().Fields().Len() > 0 {
			t.Errorf("%s: got one decision for a whole message, want one for each of its fields", path)
		}
	}
}

// fieldAt returns the field of ModelConfig at a path.
func fieldAt(path string) protoreflect.FieldDescriptor {
	desc := (&modelpb.ModelConfig{}).ProtoReflect().Descriptor()
	var fd protoreflect.FieldDescriptor
	for _, name := range strings.Split(path, ".") {
		if fd = desc.Fields().ByTextName(name); fd == nil {
			return nil
		}
		desc = fd.Message()
	}
	return fd
}
