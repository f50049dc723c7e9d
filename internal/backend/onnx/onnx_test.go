package onnx

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"shoal/internal/backend"
	"shoal/internal/backend/onnx/onnxtest"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// newBackend returns a backend over the library under test, and its log.
func newBackend(t testing.TB, config map[string]string) (*Backend, *strings.Builder) {
	t.Helper()
	path := onnxtest.Library(t)
	log := new(strings.Builder)
	return New(Options{
		Library: func() (string, error) { return path, nil },
		Logger:  slog.New(slog.NewTextHandler(log, nil)),
		Config:  config,
	}), log
}

// write puts a model into a version's folder of its own.
func write(t testing.TB, m onnxtest.Model) backend.Source {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "1")
	writeFile(t, filepath.Join(dir, "model.onnx"), m.Marshal())
	return backend.Source{Model: "m", Version: 1, Dir: dir, Root: root}
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// config reads a configuration in text form.
func config(t testing.TB, text string) *modelpb.ModelConfig {
	t.Helper()
	cfg := new(modelpb.ModelConfig)
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Name = "m"
	return cfg
}

// load completes a configuration and opens the model.
func load(t testing.TB, b *Backend, src backend.Source, cfg *modelpb.ModelConfig) (*loaded, error) {
	t.Helper()
	p := b.Probe(src)
	defer p.Close()
	if err := p.Complete(t.Context(), cfg); err != nil {
		return nil, err
	}
	m, err := p.Open(t.Context(), cfg, model.NewSignature(cfg), nil)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { m.Close() })
	return m.(*loaded), nil
}

// start loads a model under a configuration in text form and starts an instance.
func start(t testing.TB, m onnxtest.Model, text string) *instance {
	t.Helper()
	b, _ := newBackend(t, nil)
	return startOn(t, b, write(t, m), text)
}

func startOn(t testing.TB, b *Backend, src backend.Source, text string) *instance {
	t.Helper()
	l, err := load(t, b, src, config(t, text))
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Start(t.Context(), backend.Placement{Name: "m_0_0", Kind: modelpb.ModelInstanceGroup_KIND_CPU, Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in.(*instance)
}

// An arg is an input of a request in a test.
type arg struct {
	index  int
	typ    tensor.Type
	shape  tensor.Shape
	pieces [][]byte
}

// request returns a request of so many rows.
func request(rows int, args ...arg) *infer.Request {
	r := infer.NewRequest()
	r.Rows = rows
	for _, a := range args {
		in := r.AddInput()
		in.Index, in.Type, in.Shape = a.index, a.typ, a.shape
		if len(a.pieces) > 0 {
			in.Data.First, in.Data.Rest = a.pieces[0], a.pieces[1:]
		}
	}
	return r
}

// run runs the requests as one batch.
func run(in *instance, requests ...*infer.Request) (*infer.Batch, error) {
	b := &infer.Batch{Requests: requests}
	for _, r := range requests {
		b.Rows += r.Rows
	}
	return b, in.Run(b)
}

// result returns an output of a request.
func result(t testing.TB, r *infer.Request, name string) *infer.Output {
	t.Helper()
	for i := range r.Response.Outputs {
		if r.Response.Outputs[i].Name == name {
			return &r.Response.Outputs[i]
		}
	}
	t.Fatalf("got no output %s, want one", name)
	return nil
}

func TestAddSubRunsWithoutAConfiguration(t *testing.T) {
	in := start(t, onnxtest.AddSub(tensor.FP32, 2), ``)
	if got := in.model.sig.MaxBatch; got != 4 {
		t.Errorf("max_batch_size: got %d, want 4", got)
	}
	r := request(1,
		arg{0, tensor.FP32, tensor.Shape{1, 2}, [][]byte{onnxtest.Floats(5, 7)}},
		arg{1, tensor.FP32, tensor.Shape{1, 2}, [][]byte{onnxtest.Floats(2, 3)}})
	defer r.Release()
	b, err := run(in, r)
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	for name, want := range map[string][]byte{"OUTPUT0": onnxtest.Floats(7, 10), "OUTPUT1": onnxtest.Floats(3, 4)} {
		out := result(t, r, name)
		if string(out.Data) != string(want) || out.Shape.String() != "[1,2]" || out.Type != tensor.FP32 {
			t.Errorf("%s: got %v %v %x, want FP32 [1,2] %x", name, out.Type, out.Shape, out.Data, want)
		}
	}
	if b.Times.InputsReady.IsZero() || b.Times.OutputsOut.Before(b.Times.InputsReady) {
		t.Errorf("times: got %+v, want both set, in order", b.Times)
	}
}
