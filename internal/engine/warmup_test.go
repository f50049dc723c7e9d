package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/status"
)

const warmed = `
backend: "fake"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "B" data_type: TYPE_STRING dims: [ 2 ] } ]
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
`

func warmup(name string, batch, count int, a, b string) string {
	return fmt.Sprintf(`model_warmup { name: %q batch_size: %d count: %d
		inputs { key: "A" value { data_type: TYPE_FP32 dims: [ 2 ] %s } } inputs { key: "B" value { data_type: TYPE_STRING dims: [ 2 ] %s } } }
`, name, batch, count, a, b)
}

func TestEachInstanceIsWarmBeforeTheModelIsReady(t *testing.T) {
	var mu sync.Mutex // protects ran
	var ran []string
	fake := &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		in := b.Requests[0].Inputs
		ran = append(ran, fmt.Sprintf("%d %v %x %q", b.Rows, in[0].Shape, in[0].Data.First, in[1].Data.First))
		return nil
	}}
	config := warmed + warmup("zeros", 3, 2, "zero_data: true", "random_data: true") + warmup("none", 0, 1, "zero_data: true", "zero_data: true") +
		warmup("file", 1, 0, `input_data_file: "a"`, `input_data_file: "b"`)
	dir := repo(t, map[string]string{
		"m/config.pbtxt": config + count(2), "m/1/": "", "m/warmup/a": "12345678 and more", "m/warmup/b": "\x01\x00\x00\x00x\x00\x00\x00\x00",
	})
	e := New(Options{Repositories: []string{dir}, LoadThreads: 1, Control: true, Backends: []backend.Backend{fake}, Log: slog.New(slog.DiscardHandler)})
	if err := e.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	one := []string{
		`3 [1,2] 0000000000000000 "\x00\x00\x00\x00\x00\x00\x00\x00"`, `3 [1,2] 0000000000000000 "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		`1 [1,2] 3132333435363738 "\x01\x00\x00\x00x\x00\x00\x00\x00"`,
	}
	if want := slices.Concat(one, one); !slices.Equal(ran, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(ran, "\n"), strings.Join(want, "\n"))
	}
	stats, err := e.Statistics("m", 1)
	if err != nil || stats[0].ExecutionCount != 0 || stats[0].Success.Count != 0 || stats[0].Pending != 0 {
		t.Errorf("got %+v, %v, want nothing counted", stats, err)
	}
	ran = nil
	write(t, dir, "m/config.pbtxt", config+count(3))
	if err := e.Load(t.Context(), "m", Override{}); err != nil || !slices.Equal(ran, one) {
		t.Errorf("another instance: got %v, %v, want only that one warm", ran, err)
	}
}

func TestAWarmUpThatFailsFailsTheLoad(t *testing.T) {
	input := func(text string) string {
		return warmed + `model_warmup { name: "w" batch_size: 1 inputs { key: "A" value { ` + text + ` } } }`
	}
	tests := []struct{ name, config, want string }{
		{"the run fails", warmed + warmup("w", 1, 1, "zero_data: true", "zero_data: true"), "boom"},
		{"no such file", warmed + warmup("w", 1, 1, `input_data_file: "nosuch"`, "zero_data: true"), "warmup/nosuch"},
		{"a file outside", warmed + warmup("w", 1, 1, `input_data_file: "../x"`, "zero_data: true"), "leaves the model's folder"},
		{"a file that is too short", warmed + warmup("w", 1, 1, `input_data_file: "short"`, "zero_data: true"), "warmup setting expects 8 bytes, but the data provided from short only has 2 bytes"},
		{"more rows than the model takes", warmed + warmup("w", 9, 1, "zero_data: true", "zero_data: true"), "batch_size is 9"},
		{"an input is missing", input("data_type: TYPE_FP32 dims: [ 2 ] zero_data: true"), "expected 2 inputs"},
		{"no dimensions", input("data_type: TYPE_FP32 dims: [ -1 ] zero_data: true"), "want every dimension given"},
		{"no type", input("dims: [ 2 ] zero_data: true"), "has no data_type"},
		{"no data", input("data_type: TYPE_FP32 dims: [ 2 ]"), "has no data"},
		{"far too much", input("data_type: TYPE_FP32 dims: [ 4000000000 ] random_data: true"), "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := &backendtest.Fake{OnRun: func(*infer.Batch) error { return status.Wrap(status.Internal, errors.New("private"), "boom") }}
			dir := repo(t, map[string]string{"m/config.pbtxt": tt.config, "m/1/": "", "m/warmup/short": "ab"})
			e := New(Options{Repositories: []string{dir}, LoadThreads: 1, Backends: []backend.Backend{fake}, Log: slog.New(slog.DiscardHandler)})
			if err := e.LoadAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			line := e.Index(false)[0]
			if line.State != StateUnavailable || !strings.Contains(line.Reason, "failed to run warmup sample 'w': ") || !strings.Contains(line.Reason, tt.want) {
				t.Errorf("got %+v, want it to name the sample and %q", line, tt.want)
			}
			if started, closed := fake.Instances(); started != closed {
				t.Errorf("got %d instances started and %d closed", started, closed)
			}
		})
	}
}
