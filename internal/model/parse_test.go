package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// goodTexts show each freedom of the format once.
var goodTexts = []struct{ name, text string }{
	{"nothing at all", ""},
	{"only a comment without a line break", "# nothing"},
	{"no colon before braces", `input { name: "a" }`},
	{"a colon before braces", `input: { name: "a" }`},
	{"angle brackets", `input < name: "a" dims: 1 >`},
	{"a list of messages", `input [ { name: "a" }, < name: "b" > ]`},
	{"a list of messages after a colon", `input: [{name:"a"}]`},
	{"an empty list", `input [] output: [ ]`},
	{"a list and single values together", `input { dims: [ 1, 2 ] dims: 3 dims: [] dims: [ 4 ] }`},
	{"a list over many lines with comments", "input { dims: [ # first\n 1, # one\n -1 # rest\n ] }"},
	{"semicolons and commas after fields", `name: "a"; max_batch_size: 1, input { dims: 1; dims: 2, };`},
	{"strings side by side", `name: "a" 'b'"c" # and` + "\n" + `"d"`},
	{"every short escape", `name: "\a\b\f\n\r\t\v\?\'\"\\"`},
	{"octal and hexadecimal escapes", `name: "\101\0\60\x41\x4a\xc3\xa9"`},
	{"unicode escapes and a surrogate pair", `name: "\u00e9\U0001f41f\ud83d\udc1f"`},
	{"the other quote inside", `name: 'say "hi"'`},
	{"numbers in every base", `input { dims: [ 0, 7, 010, 0x1F, -0x10, -010, -1 ] }`},
	{"a minus sign apart from its number", "input { dims: [ - 1, -\t# far\n2 ] }"},
	{"the largest integers", `dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 } max_batch_size: 2147483647`},
	{"the smallest integers", `input { dims: -9223372036854775808 } max_batch_size: -2147483648`},
	{"floats in every way", `sequence_batching { control_input { control { fp32_false_true: [ 0, 1.5, .5, 1., 1e3, 1E-3, 1.5e+2f, 2F, 017, -0.0, 1e999, 1e-999 ] } } }`},
	{"floats that are words", `model_metrics { metric_control { histogram_options { buckets: [ inf, -inf, nan, Infinity, -INFINITY, NaN ] } } }`},
	{"booleans in every way", `sequence_batching { control_input { control { bool_false_true: [ true, false, True, False, t, f, 1, 0, 01, 0x0, 1f ] } } }`},
	{"an enum by number", `input { data_type: 11 format: 0x1 } instance_group { kind: 99 }`},
	{"map entries as messages", `parameters { key: "a" value { string_value: "1" } } parameters: { key: "b" value: { } }`},
	{"map entries in a list", `metric_tags [ { key: "a", value: "1" }, { value: "2" }, {} ]`},
	{"the last of equal keys", `metric_tags { key: "a" value: "1" } metric_tags { value: "2" key: "a" }`},
	{"a map whose keys are numbers", `dynamic_batching { priority_queue_policy { key: 2 value { max_queue_size: 3 } } }`},
	{"an empty member of a oneof", `version_policy { all {} } dynamic_batching { }`},
	{"a false member of a oneof", `model_warmup { inputs { key: "a" value { zero_data: false } } }`},
	{"nothing between tokens", `name:"a"input{dims:[1,2]name:'b'}max_batch_size:3`},
}

func TestParseAcceptsTheWholeFormat(t *testing.T) {
	for _, c := range goodTexts {
		t.Run(c.name, func(t *testing.T) { compareWithPrototext(t, []byte(c.text)) })
	}
}

func TestParseReadsRealConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.pbtxt")
	if err != nil || len(files) == 0 {
		t.Fatalf("configurations: got %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			compareWithPrototext(t, text)
		})
	}
}

func compareWithPrototext(t *testing.T, text []byte) {
	t.Helper()
	want := &modelpb.ModelConfig{}
	if err := prototext.Unmarshal(text, want); err != nil {
		t.Fatalf("prototext: got %v, want a text that it accepts", err)
	}
	got, err := Parse(text, "config.pbtxt")
	if err != nil {
		t.Fatalf("Parse: got %v, want no error", err)
	}
	if !proto.Equal(want, got) {
		t.Errorf("Parse differs from prototext (-want +got):\n%s", cmp.Diff(want, got, protocmp.Transform()))
	}
}

var faultyTexts = []struct {
	name, text string
	want       []string // the lines of the error
}{
	{
		"an unknown field names the nearest", "max_batchsize: 8",
		[]string{"c:1:1: unknown field max_batchsize; did you mean max_batch_size?"},
	},
	{
		"an unknown field with nothing near names all", "version_policy { newest { n: 1 } }",
		[]string{"c:1:18: version_policy: unknown field newest; the fields of ModelVersionPolicy are latest, all, specific"},
	},
	{
		"a field of a message without fields", "version_policy { all { n: 1 } }",
		[]string{"c:1:24: version_policy.all: unknown field n; All has no fields"},
	},
	{
		"an unknown enum value lists the values", "instance_group { kind: KIND_TPU }",
		[]string{"c:1:24: instance_group[0].kind: unknown value KIND_TPU; expected one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"},
	},
	{
		"a string where a number belongs", "max_batch_size: \"8\"",
		[]string{`c:1:17: max_batch_size: expected an integer from -2147483648 to 2147483647, got "8"`},
	},
	{
		"a word where a string belongs", "name: simple",
		[]string{"c:1:7: name: expected a string in quotes, got simple"},
	},
	{
		"a float where an integer belongs", "input { dims: [ 1, 2.0 ] }",
		[]string{"c:1:20: input[0].dims[1]: expected an integer from -9223372036854775808 to 9223372036854775807, got 2.0"},
	},
	{
		"a number that does not fit", "dynamic_batching { default_queue_policy { max_queue_size: 4294967296 } }",
		[]string{"c:1:59: dynamic_batching.default_queue_policy.max_queue_size: expected an integer from 0 to 4294967295, got 4294967296"},
	},
	{
		"a negative number without sign in its type", "dynamic_batching { priority_levels: -1 }",
		[]string{"c:1:37: dynamic_batching.priority_levels: expected an integer from 0 to 18446744073709551615, got -1"},
	},
	{
		"a boolean in capitals", "response_cache { enable: TRUE }",
		[]string{"c:1:26: response_cache.enable: expected true or false, got TRUE"},
	},
	{
		"a number that is none", "model_metrics { metric_control { histogram_options { buckets: [ 0x10, one ] } } }",
		[]string{
			"c:1:65: model_metrics.metric_control[0].histogram_options.buckets[0]: expected a number, got 0x10",
			"c:1:71: model_metrics.metric_control[0].histogram_options.buckets[1]: expected a number, got one",
		},
	},
	{
		"a field twice", "name: \"a\"\nname: \"b\"",
		[]string{"c:2:1: name: name is given twice, first at 1:1; expected it once"},
	},
	{
		"a message twice is still read", "optimization { }\noptimization { priority: HIGH }",
		[]string{
			"c:2:1: optimization: optimization is given twice, first at 1:1; expected it once",
			"c:2:26: optimization.priority: unknown value HIGH; expected one of PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN",
		},
	},
	{
		"two schedulers", "dynamic_batching { }\nsequence_batching { }",
		[]string{"c:2:1: sequence_batching: sequence_batching cannot be combined with dynamic_batching, which is at 1:1; expected one of them"},
	},
	{
		"a key twice in an entry of a map", "metric_tags { key: \"a\" key: \"b\" }",
		[]string{"c:1:24: metric_tags.key: key is given twice, first at 1:15; expected it once"},
	},
	{
		"a wrong field in an entry of a map", "metric_tags { key: \"a\" val: \"b\" }",
		[]string{"c:1:24: metric_tags: unknown field val; did you mean value?"},
	},
	{
		"an entry of a map as a scalar", "metric_tags: \"a\"\nname: 1",
		[]string{
			`c:1:14: metric_tags: expected a message: metric_tags { ... }, got "a"`,
			"c:2:7: name: expected a string in quotes, got 1",
		},
	},
	{
		"a string without end", "name: \"a\nplatform: 3",
		[]string{
			`c:1:7: name: the string that begins here does not end on its line; expected a closing " (write \n for a line break)`,
			"c:2:11: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a string that runs to the end of the file", "name: 'a",
		[]string{`c:1:7: name: the string that begins here never ends; expected a closing '`},
	},
	{
		"a wrong escape", `name: "C:\models" platform: 3`,
		[]string{
			`c:1:10: name: "\\m" is not an escape sequence; write \\ for a backslash`,
			"c:1:29: platform: expected a string in quotes, got 3",
		},
	},
	{
		"half a surrogate pair", `name: "\ud83d"`,
		[]string{`c:1:8: name: "\\ud83d" is not an escape sequence; write \\ for a backslash`},
	},
	{
		"escapes that make no UTF-8", `name: "\xff"`,
		[]string{"c:1:7: name: the escapes of the string do not make UTF-8; expected text"},
	},
	{
		"bytes that are no UTF-8", "name: \"\xff\"",
		[]string{"c:1:8: name: byte 0xff is not UTF-8; save the file as UTF-8"},
	},
	{
		"columns count characters", `name: "é" x: 1`,
		[]string{"c:1:11: unknown field x; " + allConfigFields},
	},
	{
		"a missing colon", "name \"a\"\nplatform: 3",
		[]string{
			"c:1:1: name: ':' is missing after name; expected name: and a string in quotes",
			"c:2:11: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a missing value", "max_batch_size:\nname: 3",
		[]string{
			"c:2:1: max_batch_size: the value is missing; expected an integer from -2147483648 to 2147483647, got name",
			"c:2:7: name: expected a string in quotes, got 3",
		},
	},
	{
		"a missing message", "input\nname: \"a\"",
		[]string{"c:2:1: input[0]: the value is missing; expected a message: input { ... }, got name"},
	},
	{
		"a scalar where a message belongs", "input: \"a\" output: 3",
		[]string{
			`c:1:8: input[0]: expected a message: input { ... }, got "a"`,
			"c:1:20: output[0]: expected a message: output { ... }, got 3",
		},
	},
	{
		"a message where a scalar belongs", "name { a: 1 } max_batch_size: { b { c: [ 1 ] } } platform: 3",
		[]string{
			"c:1:1: name: ':' is missing after name; expected name: and a string in quotes",
			"c:1:31: max_batch_size: expected an integer from -2147483648 to 2147483647, got a message",
			"c:1:60: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a list where one value belongs", "name: [ \"a\" ] optimization: [ { } ]",
		[]string{
			"c:1:7: name: expected a string in quotes, got a list",
			"c:1:29: optimization: expected a message: optimization { ... }, got a list",
		},
	},
	{
		"a list within a list", "input { dims: [ [ 1 ], 2 ] name: 3 }",
		[]string{
			"c:1:17: input[0].dims[0]: expected an integer from -9223372036854775808 to 9223372036854775807, got a list",
			"c:1:34: input[0].name: expected a string in quotes, got 3",
		},
	},
	{
		"a missing comma in a list", "input { dims: [ 1 2, x ] }",
		[]string{
			"c:1:19: input[0].dims[0]: ',' is missing before 2",
			"c:1:22: input[0].dims[2]: expected an integer from -9223372036854775808 to 9223372036854775807, got x",
		},
	},
	{
		"a missing comma between messages", "input [ { name: \"a\" } { name: 3 } ]",
		[]string{
			"c:1:23: input[0]: ',' is missing before {",
			"c:1:31: input[1].name: expected a string in quotes, got 3",
		},
	},
	{
		"a comma at the end of a list", "input [ { name: \"a\" }, ]",
		[]string{"c:1:24: input[0]: a list cannot end in a comma; expected another value, or ] without the comma"},
	},
	{
		"a list without end", "input { dims: [ 1, 2 name: \"a\" } platform: 3",
		[]string{
			"c:1:22: input[0].dims[1]: expected ',' or the ] of the list that begins at 1:15, got name",
			"c:1:44: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a brace too many", "input { name: \"a\" } }\nplatform: 3",
		[]string{
			"c:1:21: } closes nothing; remove it",
			"c:2:11: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a brace too few", "input { name: \"a\"\noutput { name: \"b\" }",
		[]string{
			"c:2:1: input[0]: unknown field output; the fields of ModelInput are name, data_type, format, dims, reshape, is_shape_tensor, allow_ragged_batch, optional, is_non_linear_format_io",
			"c:2:21: input[0]: } is missing for the { at 1:7",
		},
	},
	{
		"a bracket of the other kind", "input { name: \"a\" > platform: 3",
		[]string{
			"c:1:19: input[0]: > does not close the { at 1:7; expected }",
			"c:1:31: platform: expected a string in quotes, got 3",
		},
	},
	{
		"two commas", "name: \"a\",, platform: 3",
		[]string{
			"c:1:11: expected a field's name, got ,",
			"c:1:23: platform: expected a string in quotes, got 3",
		},
	},
	{
		"a field by number", "1: \"a\" platform: 3",
		[]string{
			"c:1:1: fields are given by name, not by number: 1",
			"c:1:18: platform: expected a string in quotes, got 3",
		},
	},
	{
		"an extension", "[a.b/c]: { x: 1 } platform: 3",
		[]string{
			"c:1:1: extensions and Any are not accepted here; expected a field's name",
			"c:1:29: platform: expected a string in quotes, got 3",
		},
	},
	{
		"letters that mean nothing", "name = \"a\"\nplatform: 3",
		[]string{
			"c:1:1: name: ':' is missing after name; expected name: and a string in quotes",
			"c:1:8: expected a field's name, got \"a\"",
			"c:2:11: platform: expected a string in quotes, got 3",
		},
	},
	{
		"letters that cannot be printed", "max_batch_size: \x01\xff\nplatform: 'a'\n'b' 3",
		[]string{
			`c:1:17: max_batch_size: expected an integer from -2147483648 to 2147483647, got "\x01\xff"`,
			"c:3:5: expected a field's name, got 3",
		},
	},
	{
		"a long value over several lines", "max_batch_size: \"0123456789012345678901234567890123456789é\" name: 'a'\n'b' platform 'a'\n'b' backend: 3 max_batch_size: 'a'\n'b'",
		[]string{
			`c:1:17: max_batch_size: expected an integer from -2147483648 to 2147483647, got "012345678901234567890123456789012345678…`,
			"c:2:5: platform: ':' is missing after platform; expected platform: and a string in quotes",
			"c:3:14: backend: expected a string in quotes, got 3",
			"c:3:16: max_batch_size: max_batch_size is given twice, first at 1:1; expected it once",
			"c:3:32: max_batch_size: expected an integer from -2147483648 to 2147483647, got 'a'…",
		},
	},
	{
		"a name with a dash", "max-batch-size: 8\nplatform: 3",
		[]string{
			"c:1:1: expected a field's name, got max-batch-size",
			"c:2:11: platform: expected a string in quotes, got 3",
		},
	},
	{
		"numbers that are none", "max_batch_size: 08 input { dims: [ 1_000, 0x ] }",
		[]string{
			"c:1:17: max_batch_size: expected an integer from -2147483648 to 2147483647, got 08",
			"c:1:36: input[0].dims[0]: expected an integer from -9223372036854775808 to 9223372036854775807, got 1_000",
			"c:1:43: input[0].dims[1]: expected an integer from -9223372036854775808 to 9223372036854775807, got 0x",
		},
	},
	{
		"a string without end in a list", "batch_output { source_input: [ \"a\", \"b ] }\n}",
		[]string{
			`c:1:37: batch_output[0].source_input[1]: the string that begins here does not end on its line; expected a closing " (write \n for a line break)`,
			"c:2:1: batch_output[0].source_input[1]: expected ',' or the ] of the list that begins at 1:30, got }",
		},
	},
}

const allConfigFields = "the fields of ModelConfig are name, platform, backend, runtime, version_policy, max_batch_size, input, output, " +
	"batch_input, batch_output, optimization, dynamic_batching, sequence_batching, ensemble_scheduling, instance_group, " +
	"default_model_filename, cc_model_filenames, metric_tags, parameters, model_warmup, model_operations, " +
	"model_transaction_policy, model_repository_agents, response_cache, model_metrics"

func TestParseReportsEveryFault(t *testing.T) {
	for _, c := range faultyTexts {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(c.text), "c")
			if err == nil {
				t.Fatalf("Parse(%q): got %v, want an error", c.text, cfg)
			}
			if got := status.CodeOf(err); got != status.InvalidArgument {
				t.Errorf("code: got %v, want %v", got, status.InvalidArgument)
			}
			if diff := cmp.Diff(c.want, strings.Split(status.Public(err), "\n")); diff != "" {
				t.Errorf("faults of %q (-want +got):\n%s", c.text, diff)
			}
		})
	}
}

func TestParseStopsAtTheMostFaults(t *testing.T) {
	_, err := Parse([]byte(strings.Repeat("nosuch: 1\n", 1000)), "c")
	if err == nil {
		t.Fatal("got no error, want one")
	}
	lines := strings.Split(err.Error(), "\n")
	if got, want := len(lines), maxFaults+1; got != want {
		t.Fatalf("lines: got %d, want %d", got, want)
	}
	if got, want := lines[maxFaults], "c: more than 50 faults; the others are not shown"; got != want {
		t.Errorf("last line: got %q, want %q", got, want)
	}
}

func TestParseOfDeepNestingEnds(t *testing.T) {
	for _, open := range []string{"{", "<", "[", "a {", "a: [{"} {
		if _, err := Parse([]byte("x: "+strings.Repeat(open, 1<<20)), "c"); err == nil {
			t.Errorf("a million times %q: got no error, want one", open)
		}
	}
}
