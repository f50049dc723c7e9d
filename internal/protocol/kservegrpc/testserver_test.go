package kservegrpc

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/backend/example/square"
	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// testTimeout is how long a test waits for what must happen at once.
const testTimeout = 10 * time.Second

// The models that test servers have.
var testModels = map[string]string{
	// The model that the recorded calls were made to.
	"simple": `platform: "onnxruntime_onnx" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 } input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
		output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 }
		instance_group { count: 1 kind: KIND_CPU }
		parameters { key: "intra_op_thread_count" value { string_value: "1" } }
		parameters { key: "inter_op_thread_count" value { string_value: "1" } }`,
	"floats": `backend: "identity" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }`,
	"strings": `backend: "identity" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_STRING dims: -1 } output { name: "OUTPUT0" data_type: TYPE_STRING dims: -1 }`,
	// Takes anything and answers with a byte.
	"sink": `backend: "sink" max_batch_size: 8
		input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: 1 }`,
	// Waits for the test, see gate.
	"gated": `backend: "gated" instance_group { count: 16 kind: KIND_CPU }
		input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }`,
	// Notes in which order its requests ran.
	"orderly": `backend: "orderly" max_batch_size: 4 dynamic_batching { } instance_group { count: 1 kind: KIND_CPU }
		input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }`,
	// Answers n with n responses.
	"square": `backend: "square" model_transaction_policy { decoupled: true } instance_group { count: 2 kind: KIND_CPU }
		input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }`,
	"decoupled": `backend: "identity" model_transaction_policy { decoupled: true }
		input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }`,
}

// A testServer is a running server with an engine and a client of its own.
type testServer struct {
	*Server
	gate   *gate
	order  *order
	engine *engine.Engine
	conn   *grpc.ClientConn
	client pb.GRPCInferenceServiceClient
}

// startServer starts a server on a loopback port with the test models.
func startServer(tb testing.TB, opt Options) *testServer {
	tb.Helper()
	root := tb.TempDir()
	for name, config := range testModels {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(dir, "1"), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(config), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	g, o := newGate(), new(order)
	e, err := engine.Start(tb.Context(), engine.Options{
		Name: "triton", Version: "2.51.0", Repositories: []string{root}, LoadThreads: 4, Log: testLog(tb),
		Backends: []backend.Backend{identity.Backend{}, square.Backend{}, &scripted{"onnxruntime", addSub}, &scripted{"gated", g.run}, &scripted{"sink", sink}, &scripted{"orderly", o.run}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if opt.Server.Log == nil {
		opt.Server.Log = testLog(tb)
	}
	if opt.Server.Memory == nil {
		opt.Server.Memory = inflight.NewPool(inflight.New(1<<40, 0))
	}
	s := Start(opt, e, l)
	ts := &testServer{Server: s, gate: g, order: o, engine: e}
	ts.conn = dial(tb, s.Addr())
	ts.client = pb.NewGRPCInferenceServiceClient(ts.conn)
	tb.Cleanup(func() { closeServer(tb, ts) })
	return ts
}

// closeServer closes the server and the engine, and fails the test when they do
// not end.
func closeServer(tb testing.TB, s *testServer) {
	tb.Helper()
	s.gate.open()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		tb.Errorf("close the server: %v", err)
	}
	if err := s.engine.Close(ctx); err != nil {
		tb.Errorf("close the engine: %v", err)
	}
	if n := s.opt.Server.Memory.Budget().Used(); n != 0 {
		tb.Errorf("got %d bytes still claimed after the server has stopped, want none", n)
	}
}

// waitPending waits until so many requests of a model wait for an instance.
func waitPending(tb testing.TB, s *testServer, name string, want int64) {
	tb.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		st, err := s.engine.Statistics(name, infer.LatestVersion)
		if err != nil {
			tb.Fatal(err)
		}
		if st[0].Pending == want {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("got %d requests of %s waiting, want %d", st[0].Pending, name, want)
		}
		runtime.Gosched()
	}
}

// dial returns a client of addr that is closed when the test ends, before the
// server is.
func dial(tb testing.TB, addr net.Addr, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	if len(opts) == 0 {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	opts = append(opts, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	conn, err := grpc.NewClient("passthrough:///"+addr.String(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// An order notes the ids of requests as they run, and answers nothing.
type order struct {
	mu  sync.Mutex
	ids []string
}

func (o *order) run(r *infer.Request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = append(o.ids, strings.Clone(r.ID))
	return nil
}

// A scripted backend runs a function of the test.
type scripted struct {
	name string
	run  func(*infer.Request) error
}

func (b *scripted) Name() string { return b.name }

func (b *scripted) Probe(backend.Source) backend.Probed {
	return backend.Opener(func(context.Context, *modelpb.ModelConfig, *model.Signature, backend.Host) (backend.Model, error) {
		return b, nil
	})
}

func (b *scripted) Start(context.Context, backend.Placement) (backend.Instance, error) {
	return b, nil
}

func (b *scripted) Run(batch *infer.Batch) error {
	for _, r := range batch.Requests {
		r.Err = b.run(r)
	}
	return nil
}
func (b *scripted) Close() error { return nil }

// addSub is the model behind the recorded calls.
func addSub(r *infer.Request) error {
	x, y := r.Inputs[0].Data.Contiguous(nil), r.Inputs[1].Data.Contiguous(nil)
	sum, diff := r.Grow(len(x)), r.Grow(len(x))
	for i := 0; i < len(x); i += 4 {
		a, b := binary.LittleEndian.Uint32(x[i:]), binary.LittleEndian.Uint32(y[i:])
		binary.LittleEndian.PutUint32(sum[i:], a+b)
		binary.LittleEndian.PutUint32(diff[i:], a-b)
	}
	for i, data := range [][]byte{sum, diff} {
		name := []string{"OUTPUT0", "OUTPUT1"}[i]
		wanted := len(r.Outputs) == 0
		for _, w := range r.Outputs {
			wanted = wanted || w.Name == name
		}
		if wanted {
			out := r.Response.AddOutput()
			out.Name, out.Type, out.Index, out.Data = name, tensor.Int32, i, data
			out.Shape = append(out.Shape, r.Inputs[0].Shape...)
		}
	}
	return nil
}

// sink copies its input to where a batch would lie, as backends do, and answers
// with a byte.
func sink(r *infer.Request) error {
	sinkMu.Lock()
	defer sinkMu.Unlock()
	if n := r.Inputs[0].Data.Size(); n > len(sunk) {
		sunk = make([]byte, n)
	}
	r.Inputs[0].Data.CopyTo(sunk)
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Data = "OUTPUT0", tensor.Uint8, sinkAnswer
	out.Shape = append(out.Shape, 1, 1)
	return nil
}

var (
	sinkMu     sync.Mutex
	sunk       []byte
	sinkAnswer = []byte{1}
)

// A gate holds each request of its model until the test lets it pass, by the
// number that is its input.
type gate struct {
	entered chan int32           // the numbers of requests as they begin to run
	look    func(*infer.Request) // sees each request, if set before the first

	mu      sync.Mutex // protects the fields below
	passes  map[int32]chan error
	opened  bool
	running int
	peak    int
}

func newGate() *gate {
	return &gate{entered: make(chan int32, 1000), passes: make(map[int32]chan error)}
}

func (g *gate) of(n int32) chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passes[n] == nil {
		g.passes[n] = make(chan error, 1)
		if g.opened {
			g.passes[n] <- nil
		}
	}
	return g.passes[n]
}

// pass lets request n end with err.
func (g *gate) pass(n int32, err error) { g.of(n) <- err }

// open lets everything pass.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
	for _, c := range g.passes {
		select {
		case c <- nil:
		default:
		}
	}
}

// most returns how many requests were inside at once.
func (g *gate) most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peak
}

func (g *gate) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running += by
	g.peak = max(g.peak, g.running)
}

func (g *gate) run(r *infer.Request) error {
	g.count(1)
	defer g.count(-1)
	n := int32(binary.LittleEndian.Uint32(r.Inputs[0].Data.First))
	g.entered <- n
	if g.look != nil {
		g.look(r)
	}
	if n < 0 {
		panic("the model is broken")
	}
	if err := <-g.of(n); err != nil {
		return err
	}
	out := r.Response.AddOutput()
	out.Name, out.Type, out.Data = "OUTPUT0", tensor.Int32, r.Inputs[0].Data.First
	out.Shape = append(out.Shape, 1)
	return nil
}

// gatedRequest is request n to the gated model.
func gatedRequest(n int32) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName:        "gated",
		Id:               "gated request",
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(n))},
	}
}

// floatsRequest is a request to the floats model with n elements.
func floatsRequest(n int) *pb.ModelInferRequest {
	raw := make([]byte, 4*n)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	return &pb.ModelInferRequest{
		ModelName:        "floats",
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, int64(n)}}},
		RawInputContents: [][]byte{raw},
	}
}
