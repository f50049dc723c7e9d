package onnx

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

func TestCompleteFillsInWhatTheFileSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		model  onnxtest.Model
		config string
		want   string
	}{
		{
			"a batching model without a configuration", onnxtest.AddSub(tensor.Int32, 16), ``,
			`name: "m" max_batch_size: 4
			 input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 } input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
			 output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 }
			 dynamic_batching {}`,
		},
		{
			"only the batch dimension becomes a reshape", onnxtest.Identity(tensor.FP32), ``,
			`name: "m" max_batch_size: 4 dynamic_batching {}
			 input { name: "IN" data_type: TYPE_FP32 dims: 1 reshape {} } output { name: "OUT" data_type: TYPE_FP32 dims: 1 reshape {} }`,
		},
		{
			"a shape that the file leaves out is inferred",
			onnxtest.Model{
				Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{2, 3}}},
				Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Shapeless: true}},
				Nodes:   []onnxtest.Node{onnxtest.NodeOf("Relu", []string{"IN"}, "OUT")},
			},
			``,
			`name: "m" input { name: "IN" data_type: TYPE_FP32 dims: [2, 3] } output { name: "OUT" data_type: TYPE_FP32 dims: [2, 3] }`,
		},
		{
			"a dimension of -1 is a variable one",
			onnxtest.Model{
				Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{-1, 3}}},
				Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{-1, 3}}},
				Nodes:   []onnxtest.Node{onnxtest.NodeOf("Relu", []string{"IN"}, "OUT")},
			},
			`max_batch_size: 2 dynamic_batching {}`,
			`name: "m" max_batch_size: 2 dynamic_batching {} input { name: "IN" data_type: TYPE_FP32 dims: 3 } output { name: "OUT" data_type: TYPE_FP32 dims: 3 }`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := newBackend(t, nil)
			cfg := config(t, c.config)
			if err := complete(t, b, write(t, c.model), cfg); err != nil {
				t.Fatal(err)
			}
			want := config(t, c.want)
			if got, want := prototext.Format(cfg), prototext.Format(want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// complete completes a configuration and drops what it learned it from.
func complete(t *testing.T, b *Backend, src backend.Source, cfg *modelpb.ModelConfig) error {
	p := b.Probe(src)
	defer p.Close()
	return p.Complete(t.Context(), cfg)
}

func TestDefaultMaxBatchSizeIsASetting(t *testing.T) {
	b, _ := newBackend(t, map[string]string{"default-max-batch-size": "9"})
	cfg := config(t, ``)
	if err := complete(t, b, write(t, onnxtest.AddSub(tensor.FP32, 2)), cfg); err != nil || cfg.GetMaxBatchSize() != 9 {
		t.Errorf("got max_batch_size %d and %v, want 9", cfg.GetMaxBatchSize(), err)
	}
	b, _ = newBackend(t, map[string]string{"default-max-batch-size": "many"})
	err := complete(t, b, write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``))
	if err == nil || !strings.Contains(err.Error(), "default-max-batch-size=many") {
		t.Errorf("got %v, want an error that names the setting", err)
	}
}

func TestOpenTakesTheSessionOfComplete(t *testing.T) {
	b, _ := newBackend(t, nil)
	p, cfg := b.Probe(write(t, onnxtest.AddSub(tensor.FP32, 2))).(*probed), config(t, ``)
	if err := p.Complete(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	kept := p.session
	m, err := p.Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.(*loaded).sessions[0].session; got != kept {
		t.Error("got another session, want the one that Complete made")
	}
	if p.session != nil {
		t.Error("got a session that the probed model still has, want it to be the loaded model's alone")
	}
}

func TestASessionThatIsNotOpenedIsClosed(t *testing.T) {
	b, _ := newBackend(t, nil)
	p, cfg := b.Probe(write(t, onnxtest.AddSub(tensor.FP32, 2))).(*probed), config(t, ``)
	if err := p.Complete(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	s := reflect.ValueOf(p.session).Elem()
	p.Close()
	if handle := s.FieldByName("handle").Uint(); handle != 0 {
		t.Error("got a session that is still open, want it closed")
	}
	p.Close() // does nothing
}

func TestOpenLoadsAFileThatChangedAnew(t *testing.T) {
	b, _ := newBackend(t, nil)
	src, cfg := write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``)
	p := b.Probe(src)
	defer p.Close()
	if err := p.Complete(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(src.Dir, "model.onnx"), onnxtest.AddSub(tensor.FP32, 1234).Marshal())
	_, err := p.Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	if err == nil || !strings.Contains(err.Error(), "1234") {
		t.Errorf("got %v, want an error over the new file's shape", err)
	}
}

func TestAModelIsRefusedWithItsReason(t *testing.T) {
	identity := onnxtest.Identity(tensor.FP32, 2)
	sequence := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Kind: "sequence", Dims: []any{"N", 2}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("SequenceConstruct", []string{"IN"}, "OUT")},
	}
	parameter := func(name, value string) string {
		return `parameters { key: "` + name + `" value { string_value: "` + value + `" } }`
	}
	for _, c := range []struct {
		name   string
		model  onnxtest.Model
		config string
		code   status.Code
		want   string
	}{
		{"a sequence output", sequence, ``, status.InvalidArgument, "model 'm': Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'OUT'"},
		{"a parameter with a wrong value", identity, parameter("intra_op_thread_count", "two"), status.InvalidArgument, `intra_op_thread_count: got "two"`},
		{
			"an unknown accelerator", identity, `optimization { execution_accelerators { cpu_execution_accelerator { name: "warp" } } }`,
			status.InvalidArgument, "unknown Execution Accelerator 'warp' is requested; this ONNX Runtime has ",
		},
		{
			"a GPU instance without a GPU provider", identity, `instance_group { name: "m_0" kind: KIND_GPU count: 1 gpus: 0 }`,
			status.InvalidArgument, "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs",
		},
		{"a file that is not there", identity, `default_model_filename: "other.onnx"`, status.Unavailable, "other.onnx' for model 'm'"},
		{
			"a wrong type", identity, `max_batch_size: 2 input { name: "IN" data_type: TYPE_INT32 dims: 2 } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`,
			status.InvalidArgument, "configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP32",
		},
		{
			"a batch input that the model lacks", identity, `max_batch_size: 2 batch_input { target_name: "X" data_type: TYPE_FP32 source_input: "IN" } ` +
				`input { name: "IN" data_type: TYPE_FP32 dims: 2 } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`,
			status.InvalidArgument, "unexpected inference input 'X', allowed inputs are: IN",
		},
		{
			"a ragged input that the model has rows of", identity, `max_batch_size: 2 ` +
				`input { name: "IN" data_type: TYPE_FP32 dims: 2 allow_ragged_batch: true } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }`,
			status.InvalidArgument, "configuration expects model provides input with shape [-1]  for ragged input 'IN', model provides [-1,2]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "GPU") && hasCUDA(t) {
				t.Skip("this ONNX Runtime has a GPU provider")
			}
			b, _ := newBackend(t, nil)
			_, err := load(t, b, write(t, c.model), config(t, c.config))
			if err == nil || !strings.Contains(status.Public(err), c.want) || status.CodeOf(err) != c.code {
				t.Errorf("got %v (%v), want %q (%v)", err, status.CodeOf(err), c.want, c.code)
			}
		})
	}
}

func hasCUDA(t *testing.T) bool {
	b, _ := newBackend(t, nil)
	lib, err := b.library()
	if err != nil {
		t.Fatal(err)
	}
	list, err := lib.Providers()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(strings.Join(list, " "), "CUDA")
}

func TestACorruptFileIsAnErrorOfItsModel(t *testing.T) {
	good := onnxtest.AddSub(tensor.FP32, 2).Marshal()
	b, _ := newBackend(t, nil)
	for name, content := range map[string][]byte{"empty": nil, "cut": good[:len(good)-20], "text": []byte("hello")} {
		src := write(t, onnxtest.Model{})
		writeFile(t, filepath.Join(src.Dir, "model.onnx"), content)
		_, err := load(t, b, src, config(t, ``))
		if err == nil || !strings.HasPrefix(status.Public(err), "onnx runtime error ") {
			t.Errorf("%s: got %v, want ONNX Runtime's error", name, err)
		}
	}
	if _, err := load(t, b, write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``)); err != nil {
		t.Errorf("a good model after the bad ones: got %v, want none", err)
	}
}

func TestAMissingLibraryIsOneSentenceThatSaysWhatToDo(t *testing.T) {
	calls := 0
	b := New(Options{Library: func() (string, error) {
		calls++
		return "", errors.New("ONNX Runtime's library was not found; run `shoal runtime install`")
	}})
	for range 2 {
		err := complete(t, b, write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``))
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(status.Public(err), "`shoal runtime install`") {
			t.Errorf("got %v (%v), want Unavailable with the command", err, status.CodeOf(err))
		}
	}
	if calls != 1 {
		t.Errorf("looked for the library %d times, want once", calls)
	}
}

func TestAFolderStandsForTheModelInIt(t *testing.T) {
	m := onnxtest.Model{
		Inputs:       []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Outputs:      []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Nodes:        []onnxtest.Node{onnxtest.NodeOf("Add", []string{"IN", "W"}, "OUT")},
		Initializers: []onnxtest.Initializer{{Name: "W", Type: tensor.FP32, Dims: []int64{2}, External: "weights.bin"}},
	}
	root := t.TempDir()
	folder := filepath.Join(root, "1", "model.onnx")
	writeFile(t, filepath.Join(folder, "model.onnx"), m.Marshal())
	writeFile(t, filepath.Join(folder, "weights.bin"), onnxtest.Floats(10, 20))
	b, _ := newBackend(t, nil)
	in := startOn(t, b, backend.Source{Model: "m", Version: 1, Dir: filepath.Join(root, "1"), Root: root}, ``)
	r := request(1, arg{0, tensor.FP32, tensor.Shape{1, 2}, [][]byte{onnxtest.Floats(1, 2)}})
	defer r.Release()
	if _, err := run(in, r); err != nil {
		t.Fatal(err)
	}
	if got, want := result(t, r, "OUT").Data, onnxtest.Floats(11, 22); string(got) != string(want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestDynamicQuantizationInABatchingModelIsWarnedOf(t *testing.T) {
	m := onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 2}}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.Uint8, Dims: []any{"N", 2}}},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("DynamicQuantizeLinear", []string{"IN"}, "OUT", "scale", "zero")},
	}
	for text, want := range map[string]bool{``: true, `max_batch_size: 1`: false} {
		b, log := newBackend(t, nil)
		if _, err := load(t, b, write(t, m), config(t, text)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "depends on its neighbours"); got != want {
			t.Errorf("configuration %q: got a warning %v, want %v", text, got, want)
		}
	}
}

// sums returns a model that adds up the values of a row in a loop.
func sums() onnxtest.Model {
	one := func(name string) onnxtest.Tensor {
		return onnxtest.Tensor{Name: name, Type: tensor.FP32, Dims: []any{"N"}}
	}
	scan := onnxtest.NodeOf("Scan", []string{"zeros", "steps"}, "OUT", "all")
	scan.Attrs = []onnxtest.Attr{{Name: "num_scan_inputs", Value: int64(1)}, {Name: "body", Value: onnxtest.Model{
		Inputs:  []onnxtest.Tensor{one("sum"), one("x")},
		Outputs: []onnxtest.Tensor{one("next"), one("listed")},
		Nodes:   []onnxtest.Node{onnxtest.NodeOf("Add", []string{"sum", "x"}, "next"), onnxtest.NodeOf("Identity", []string{"next"}, "listed")},
	}}}
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: []any{"N", 4}}},
		Outputs: []onnxtest.Tensor{one("OUT")},
		Nodes: []onnxtest.Node{
			onnxtest.NodeOf("Transpose", []string{"IN"}, "steps"),
			onnxtest.NodeOf("Gather", []string{"steps", "first"}, "start"),
			onnxtest.NodeOf("Sub", []string{"start", "start"}, "zeros"),
			scan,
		},
		Initializers: []onnxtest.Initializer{{Name: "first", Type: tensor.Int64, Raw: onnxtest.Int64s(0)}},
	}
}

// signs returns a model that negates a row, or does not, in branches.
func signs() onnxtest.Model {
	row := []any{"N", 2}
	branch := func(op string) onnxtest.Model {
		return onnxtest.Model{
			Outputs: []onnxtest.Tensor{{Name: op, Type: tensor.FP32, Dims: row}},
			Nodes:   []onnxtest.Node{onnxtest.NodeOf(op, []string{"IN"}, op)},
		}
	}
	choose := onnxtest.NodeOf("If", []string{"yes"}, "OUT")
	choose.Attrs = []onnxtest.Attr{{Name: "then_branch", Value: branch("Neg")}, {Name: "else_branch", Value: branch("Abs")}}
	return onnxtest.Model{
		Inputs:  []onnxtest.Tensor{{Name: "IN", Type: tensor.FP32, Dims: row}},
		Outputs: []onnxtest.Tensor{{Name: "OUT", Type: tensor.FP32, Dims: row}},
		Nodes: []onnxtest.Node{
			onnxtest.NodeOf("ReduceMax", []string{"IN"}, "most"),
			onnxtest.NodeOf("Squeeze", []string{"most"}, "scalar"),
			onnxtest.NodeOf("Greater", []string{"scalar", "zero"}, "yes"),
			choose,
		},
		Initializers: []onnxtest.Initializer{{Name: "zero", Type: tensor.FP32, Raw: onnxtest.Floats(0)}},
	}
}

func TestInstancesShareASessionUnlessTheyWouldWaitForEachOther(t *testing.T) {
	large := func(m onnxtest.Model) onnxtest.Model {
		m.Initializers = append(m.Initializers, onnxtest.Initializer{Name: "K", Type: tensor.FP32, Dims: []int64{1 << 18}, Raw: make([]byte, shareFrom)})
		return m
	}
	for _, c := range []struct {
		name    string
		model   onnxtest.Model
		beside  int // bytes of a file beside the model's
		threads string
		want    int
	}{
		{"small", onnxtest.AddSub(tensor.FP32, 2), 0, "1", 5},
		{"large", large(onnxtest.AddSub(tensor.FP32, 2)), 0, "1", 2},
		{"with weights in a file of their own", onnxtest.AddSub(tensor.FP32, 2), shareFrom, "1", 2},
		{"with threads of their own", large(onnxtest.AddSub(tensor.FP32, 2)), 0, "2", 5},
		{"with loops", large(sums()), 0, "1", 5},
		{"with branches", large(signs()), 0, "1", 5},
		{"large, with branches", large(signs()), shareBranches, "1", 2},
	} {
		b, _ := newBackend(t, nil)
		src := write(t, c.model)
		if err := os.WriteFile(filepath.Join(src.Dir, "weights"), make([]byte, c.beside), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := load(t, b, src, config(t, `parameters { key: "intra_op_thread_count" value { string_value: "`+c.threads+`" } }`))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			in, err := m.Start(t.Context(), backend.Placement{Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: 5})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
		}
		if got := len(m.sessions); got != c.want {
			t.Errorf("%s: got %d sessions for 5 instances, want %d", c.name, got, c.want)
		}
	}
}

// A link has few bytes of its own.
func TestWeightsOfALinkAreThoseOfItsFile(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	for i, name := range []string{"model.onnx", "weights"} {
		if err := os.WriteFile(filepath.Join(store, name), make([]byte, 1000+i), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(store, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(store, "nothing"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if got := weights(filepath.Join(dir, "model.onnx")); got != 2001 {
		t.Errorf("got %d bytes, want 2001", got)
	}
}

func TestAFileThatGoesMissingIsAnError(t *testing.T) {
	b, _ := newBackend(t, nil)
	src, cfg := write(t, onnxtest.AddSub(tensor.FP32, 2)), config(t, ``)
	p := b.Probe(src)
	defer p.Close()
	if err := p.Complete(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(src.Dir, "model.onnx")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), cfg, model.NewSignature(cfg), nil); status.CodeOf(err) != status.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}
