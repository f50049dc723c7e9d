package kservegrpc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// A recordedCase is a call that was made to a real Triton, with its answer.
type recordedCase struct {
	name     string
	method   string
	request  proto.Message
	response proto.Message // nil for an error
	code     codes.Code
	details  string
}

var recordedCodes = map[string]codes.Code{
	"INVALID_ARGUMENT": codes.InvalidArgument,
	"NOT_FOUND":        codes.NotFound,
	"UNAVAILABLE":      codes.Unavailable,
}

// recordedCases returns the calls in testdata/triton.
func recordedCases(tb testing.TB) []recordedCase {
	tb.Helper()
	files, err := filepath.Glob("testdata/triton/*.txt")
	if err != nil || len(files) == 0 {
		tb.Fatalf("got %d recorded calls, %v, want some", len(files), err)
	}
	var cases []recordedCase
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		cases = append(cases, parseRecorded(tb, strings.TrimSuffix(filepath.Base(file), ".txt"), string(b)))
	}
	return cases
}

func parseRecorded(tb testing.TB, name, text string) recordedCase {
	tb.Helper()
	c := recordedCase{name: name, method: cut(text, "# gRPC ", "\n")}
	c.request = recordedMessage(tb, name, cut(text, "----- REQUEST (", ")"), cut(text, ") -----\n", "----- RESPONSE"))
	_, answer, _ := strings.Cut(text, "----- RESPONSE -----\n")
	if strings.HasPrefix(answer, "OK ") {
		c.response = recordedMessage(tb, name, cut(answer, "OK ", "\n"), cut(answer, "\n", "initial_metadata"))
		return c
	}
	code, ok := recordedCodes[cut(answer, "code=StatusCode.", "\n")]
	if !ok {
		tb.Fatalf("%s: the recorded code is unknown", name)
	}
	c.code = code
	// The recorder's language quotes with either mark; none of the texts has
	// anything to escape.
	c.details = strings.Trim(cut(answer, "details=", "\n"), `"`)
	if c.details[0] == '\'' {
		c.details = strings.Trim(c.details, "'")
	}
	return c
}

// cut returns what stands between the first before and the next after.
func cut(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

func recordedMessage(tb testing.TB, name, typ, text string) proto.Message {
	tb.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("inference." + typ))
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	m := mt.New().Interface()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return m
}
