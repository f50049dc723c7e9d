package modelserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/infer"
	"shoal/internal/modelstore"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/trace"
)

// TorchServe's gRPC services are few and small, so that their messages are read and
// written here instead of by generated code.

// A message is a request: its fields by their numbers.
type message struct {
	texts   map[protowire.Number]string
	numbers map[protowire.Number]int64
	input   []modelstore.Part // field 3 of a prediction
}

// A reply is an encoded answer.
type reply []byte

// grpcCodec reads and writes the messages above, and all others as usual.
type grpcCodec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c grpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		return m.decode(data.Materialize())
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal implements encoding.CodecV2.
func (c grpcCodec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(reply); ok {
		return mem.BufferSlice{mem.SliceBuffer(r)}, nil
	}
	return c.CodecV2.Marshal(v)
}

var errWire = errors.New("the message is not valid protobuf")

// decode reads a message. Fields of other types are left out.
func (m *message) decode(b []byte) error {
	m.texts, m.numbers, m.input = map[protowire.Number]string{}, map[protowire.Number]int64{}, nil
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errWire
			}
			m.numbers[field], b = int64(v), b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
			m.texts[field] = string(v)
			if field == 3 {
				m.entry(v)
			}
		default:
			n := protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
		}
	}
	return nil
}

// entry reads an entry of a map from names to bytes.
func (m *message) entry(b []byte) {
	var p modelstore.Part
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			return
		}
		v, size := protowire.ConsumeBytes(b[n:])
		if size < 0 {
			return
		}
		switch field {
		case 1:
			p.Name = string(v)
		case 2:
			p.Value = v
		}
		b = b[n+size:]
	}
	m.input = append(m.input, p)
}

// number returns a field, nil when it is absent or zero, which is the same in
// protobuf.
func (m *message) number(field protowire.Number) *int {
	n := int(int32(m.numbers[field]))
	if n == 0 {
		return nil
	}
	return &n
}

// encoded returns an answer whose only field has these bytes.
func encoded(b []byte) reply {
	out := protowire.AppendTag(make([]byte, 0, len(b)+8), 1, protowire.BytesType)
	return protowire.AppendBytes(out, b)
}

// A GRPC serves one of TorchServe's services on one listener.
type GRPC struct {
	server *grpcserver.Server
	wg     sync.WaitGroup
}

// StartGRPC serves an API over gRPC on l, which it then owns.
func (s *Server) StartGRPC(api API, opt grpcserver.Options, l net.Listener) *GRPC {
	opt.Codec = grpcCodec{encoding.GetCodecV2(proto.Name)}
	g := &GRPC{server: grpcserver.New(opt)}
	h := &handler{Server: s, apis: api}
	if api == Inference {
		g.server.RegisterService(h.inferenceService(), h)
	} else {
		g.server.RegisterService(h.managementService(), h)
	}
	g.wg.Go(func() {
		if err := g.server.Serve(l); err != nil && opt.Log != nil {
			opt.Log.Error("gRPC listener ended", "address", l.Addr().String(), "err", err)
		}
	})
	return g
}

// InFlight returns how many calls have not been answered.
func (g *GRPC) InFlight() int { return g.server.InFlight() }

// Close lets calls in flight finish; when ctx ends first, they are cut off.
func (g *GRPC) Close(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		g.server.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		g.server.Abort()
		return fmt.Errorf("close gRPC connections with calls in flight: %w", ctx.Err())
	}
	g.wg.Wait()
	return nil
}

// unary returns a method that answers a message with bytes.
func (h *handler) unary(name string, answer func(context.Context, *message) ([]byte, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
		defer guard(&err)
		m := &message{}
		if err := decode(m); err != nil {
			return nil, err
		}
		if err := h.admit(ctx); err != nil {
			return nil, err
		}
		b, err := answer(ctx, m)
		if err != nil {
			return nil, h.grpcError(err)
		}
		return encoded(b), nil
	}}
}

// guard turns a panic into an error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = grpcstatus.Error(codes.Internal, "internal error; the server's log has the details")
	}
}

// admit checks the key of a call.
func (h *handler) admit(ctx context.Context) error {
	if h.opt.Keys == nil {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if h.opt.Keys.Opens(strings.Join(md.Get("authorization"), ""), h.apis) {
		return nil
	}
	return grpcstatus.Error(codes.PermissionDenied, "Token Authorization"+textNoAccess)
}

// packages are the packages of the original's exceptions, which clients see.
var packages = map[string]string{
	"ModelNotFoundException": "org.pytorch.serve.archive.model.", "ModelVersionNotFoundException": "org.pytorch.serve.archive.model.",
	"InvalidModelException": "org.pytorch.serve.archive.model.", "DownloadArchiveException": "org.pytorch.serve.archive.",
}

// grpcError returns the error of a call. Inference has no code for what is not
// found.
func (h *handler) grpcError(err error) error {
	e := asError(err)
	code := codes.Internal
	switch {
	case e.Status == 503:
		code = codes.Unavailable
	case e.Text == modelstore.WorkerDied().Text:
		code = codes.ResourceExhausted
	case h.apis == Inference:
	case e.Status == 404:
		code = codes.NotFound
	case e.Status == 400:
		code = codes.InvalidArgument
	case e.Status == 403, e.Status == 405:
		code = codes.PermissionDenied
	case e.Status == 409:
		return grpcstatus.Error(codes.Unknown, "") // as the original's
	}
	pkg, ok := packages[e.Type]
	switch kind := "BadRequestException"; {
	case h.apis == Inference && e.Type == kind:
		return grpcstatus.Error(code, e.Text+"\n"+kind+".()") // as the original's
	case !ok:
		pkg = "org.pytorch.serve.http."
	}
	return grpcstatus.Error(code, e.Text+"\n"+pkg+e.Type)
}

func (h *handler) inferenceService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "org.pytorch.serve.grpc.inference.InferenceAPIsService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			h.unary("Ping", func(context.Context, *message) ([]byte, error) {
				word, _ := h.opt.Store.Health()
				return h.opt.Store.Encode(struct {
					Status string `json:"status"`
				}{word}), nil
			}),
			h.unary("Predictions", func(ctx context.Context, m *message) ([]byte, error) {
				var out []byte
				err := h.predictions(ctx, m, nil, func(b []byte) error {
					out = append(out, b...)
					return nil
				})
				return out, err
			}),
		},
		Streams: []grpc.StreamDesc{{StreamName: "StreamPredictions", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) (err error) {
			defer guard(&err)
			m := &message{}
			if err := s.RecvMsg(m); err != nil {
				return err
			}
			if err := h.admit(s.Context()); err != nil {
				return err
			}
			if err := h.predictions(s.Context(), m, nil, func(b []byte) error { return s.SendMsg(encoded(b)) }); err != nil {
				return h.grpcError(err)
			}
			return nil
		}}, {StreamName: "StreamPredictions2", ServerStreams: true, ClientStreams: true, Handler: h.sequences}},
	}
}

// The headers by which handlers know the sequence of a request.
const (
	sequenceID    = "ts_request_sequence_id"
	sequenceStart = "ts_request_sequence_start"
	sequenceEnd   = "ts_request_sequence_end"
)

// sequences answers the requests of a stream one after another: those of a sequence
// depend on their order. A request that fails is told in its answer, and the stream
// goes on.
func (h *handler) sequences(_ any, s grpc.ServerStream) (err error) {
	defer guard(&err)
	if err := h.admit(s.Context()); err != nil {
		return err
	}
	for {
		m := &message{}
		if err := s.RecvMsg(m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		headers, err := m.sequence()
		if err == nil {
			err = h.predictions(s.Context(), m, headers, func(b []byte) error { return s.SendMsg(encoded(b)) })
		}
		if err != nil {
			if gone := s.Context().Err(); gone != nil {
				return gone
			}
			if err := s.SendMsg(failed(h.grpcError(err))); err != nil {
				return err
			}
		}
	}
}

// sequence returns the headers of a request in a sequence.
func (m *message) sequence() ([]modelstore.Header, error) {
	var list []modelstore.Header
	add := func(name, value string) {
		list = append(list, modelstore.Header{Name: []byte(name), Value: []byte(value)})
	}
	says := func(name string) bool {
		for _, p := range m.input {
			if p.Name == name {
				return strings.EqualFold(string(p.Value), "true")
			}
		}
		return false
	}
	id := m.texts[4]
	if id == "" {
		if !says(sequenceStart) {
			return nil, errBad("Parameter sequenceId is required.")
		}
		id = "ts-seq-" + newID()
		add(sequenceStart, "true")
	}
	add(sequenceID, id)
	if says(sequenceEnd) {
		add(sequenceEnd, "true")
	}
	return list, nil
}

// failed returns the answer to a request of a stream that goes on: field 3 has a
// google.rpc.Status, whose detail is a google.rpc.ErrorInfo with the error's name.
func failed(err error) reply {
	st := grpcstatus.Convert(err)
	text, kind, _ := strings.Cut(st.Message(), "\n")
	bytesField := func(b []byte, field protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
	}
	detail := bytesField(nil, 1, []byte("type.googleapis.com/google.rpc.ErrorInfo"))
	detail = bytesField(detail, 2, bytesField(nil, 1, []byte(kind)))
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(st.Code()))
	b = bytesField(bytesField(b, 2, []byte(text)), 3, detail)
	return bytesField(nil, 3, b)
}

// predictions has a handler run and calls send with each part of its answer.
func (h *handler) predictions(ctx context.Context, m *message, headers []modelstore.Header, send func([]byte) error) (err error) {
	name, version := m.texts[1], m.texts[2]
	if name == "" {
		return errBad("Parameter model_name is required.")
	}
	v, err := h.opt.Store.Find(name, version)
	if err != nil {
		return err
	}
	lease, running, err := h.opt.Store.Acquire(ctx, v, version)
	if err != nil {
		return err
	}
	r := infer.NewRequest()
	traced := h.opt.Engine.Tracer().Sample(running.Name(), trace.GRPC, trace.Parent{}, time.Now())
	traced.ReadDone()
	defer func() {
		r.Release()
		traced.Fail(err)
		traced.End()
	}()
	r.Trace = traced.First()
	r.Hold(lease)
	r.Claim = h.opt.Memory.Budget().Claim()
	r.Model, r.Version = running.Name(), running.Number()
	if err := modelstore.Pack(r, newID(), headers, m.input); err != nil {
		return err
	}
	if access := grpcserver.Access(ctx); access != nil {
		access.ModelText(v.Name(), v.Number())
		r.Spent = &access.Spent
		defer access.Ran(r) // before the request is released
	}
	begin := time.Now()
	err = running.InferStream(ctx, r, func(resp *infer.Response, _ bool) error {
		if resp == nil {
			return nil
		}
		if resp.Err != nil {
			return resp.Err
		}
		a, err := modelstore.Unpack(resp)
		if err != nil {
			return err
		}
		if a.Kind == modelstore.AnswerError {
			return modelstore.Internal(a.Status, string(a.Body))
		}
		traced.Sending()
		return send(bytes.Clone(a.Body))
	})
	if err != nil {
		return running.Fault(r, err)
	}
	if h.opt.Meter != nil {
		took := time.Since(begin)
		h.opt.Meter.Inference(v.Name(), version, took, took)
	}
	return nil
}

func (h *handler) managementService() *grpc.ServiceDesc {
	s := h.opt.Store
	text := func(d modelstore.Done, err error) ([]byte, error) { return []byte(d.Text), err }
	return &grpc.ServiceDesc{
		ServiceName: "org.pytorch.serve.grpc.management.ManagementAPIsService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			h.unary("DescribeModel", func(ctx context.Context, m *message) ([]byte, error) {
				return h.describe(ctx, m.texts[1], m.texts[2], m.numbers[3] != 0, nil)
			}),
			h.unary("ListModels", func(_ context.Context, m *message) ([]byte, error) {
				limit := 100
				if n := m.number(1); n != nil {
					limit = *n
				}
				return s.List(limit, int(int32(m.numbers[2]))), nil
			}),
			h.unary("RegisterModel", func(ctx context.Context, m *message) ([]byte, error) {
				if !h.opt.ModelAPI {
					return nil, errMethod()
				}
				r := modelstore.Registration{
					URL: m.texts[9], HasURL: m.texts[9] != "", Name: m.texts[5], Handler: m.texts[2], Runtime: m.texts[7],
					BatchSize: m.number(1), InitialWorkers: m.number(3), BatchDelay: m.number(4), Synchronous: m.numbers[8] != 0,
				}
				for field, to := range map[protowire.Number]**time.Duration{6: &r.ResponseTimeout, 11: &r.StartupTimeout} {
					if n := m.number(field); n != nil {
						d := time.Duration(*n) * time.Second
						*to = &d
					}
				}
				return text(s.Register(ctx, r))
			}),
			h.unary("ScaleWorker", func(ctx context.Context, m *message) ([]byte, error) {
				low := 1
				if n := m.number(4); n != nil {
					low = *n
				}
				high := low
				if n := m.number(3); n != nil {
					high = *n
				}
				return text(s.Scale(ctx, modelstore.Scaling{Name: m.texts[1], Version: m.texts[2], Min: low, Max: high, Synchronous: m.numbers[6] != 0}))
			}),
			h.unary("SetDefault", func(_ context.Context, m *message) ([]byte, error) {
				t, err := s.SetDefault(m.texts[1], m.texts[2])
				return []byte(t), err
			}),
			h.unary("UnregisterModel", func(ctx context.Context, m *message) ([]byte, error) {
				if !h.opt.ModelAPI {
					return nil, errMethod()
				}
				if m.texts[1] == "" {
					return nil, errBad("Parameter url is required.") // as the original's
				}
				return text(s.Unregister(ctx, m.texts[1], m.texts[2]))
			}),
		},
	}
}
