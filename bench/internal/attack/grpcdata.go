package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

const (
	// announced is the size of messages that do not come.
	announced = 2<<30 - 1
	// bombSize is what a packed body unpacks to, at about a thousandth of it.
	bombSize = 48 << 20
	// unreadElements make an answer of 4 MB.
	unreadElements = 1 << 20
)

// GRPC returns the attacks by calls over gRPC.
func GRPC() []Class {
	return []Class{
		{Name: "grpc-announced", Conns: 800, Act: grpcAnnounced, About: "a message of 2 GiB and a DATA frame of 1 MiB announced, 100 bytes sent"},
		{Name: "grpc-trickle", Conns: 200, Act: grpcTrickle, About: "a message of 16 MB at 10 KB a second"},
		{Name: "grpc-slow-headers", Conns: 200, Act: grpcSlowHeaders, About: "a header block byte by byte"},
		{Name: "grpc-idle", Conns: 500, Act: grpcIdle, About: "connections without a call"},
		{Name: "grpc-silent", Conns: 500, Act: silent(grpcAddress), About: "connections without a preface"},
		{Name: "grpc-streams", Conns: 20, Act: grpcStreams, About: "5,000 streams on each connection that wait for their message"},
		{Name: "grpc-window", Conns: 20, Act: grpcUnread(closedWindow, false), About: "answers of 4 MB behind a window of 0"},
		{Name: "grpc-unread", Conns: 20, Act: grpcUnread([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}}, true), About: "answers of 4 MB with an open window on a socket that is not read"},
		{Name: "grpc-decoupled", Conns: 20, Act: grpcDecoupled, About: "streams to a decoupled model that answers a million times, behind a window of 0"},
		{Name: "grpc-gzip", Conns: 20, Act: grpcGzip, About: "messages that unpack to a thousand times their size"},
		{Name: "grpc-inputs", Conns: 8, Act: grpcWhole(func() []byte { return bytes.Repeat([]byte{0x2a, 0}, 2<<20) }), About: "messages of 4 MB with 2 million inputs of two bytes"},
		{Name: "grpc-raw-inputs", Conns: 8, Act: grpcWhole(func() []byte { return bytes.Repeat([]byte{0x3a, 0}, 2<<20) }), About: "messages of 4 MB with 2 million raw contents of two bytes"},
		{Name: "grpc-malformed", Conns: 8, Act: grpcMalformed, About: "requests with random bytes changed"},
		{Name: "grpc-restricted", Conns: 50, Act: grpcRestricted, About: "calls without the key that they need, with messages of 64 MB", Flags: []string{"--grpc-restricted-protocol=statistics:key=value"}},
	}
}

func grpcAnnounced(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	id := c.call(inferPath)
	// The header of a DATA frame of 1 MiB by hand; its content does not follow.
	c.out.Write([]byte{0x10, 0, 0, byte(http2.FrameData), 0, 0, 0, 0, byte(id)})
	c.out.Write(prefix(announced, false))
	c.out.Write(make([]byte, 100))
	if err := c.flush(); err != nil {
		return err
	}
	return c.hold()
}

func grpcTrickle(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	done := c.background(nil)
	id := c.call(inferPath)
	c.framer.WriteData(id, false, prefix(16<<20, false))
	for {
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case err := <-done:
			return err
		case <-time.After(100 * time.Millisecond):
			c.framer.WriteData(id, false, make([]byte, 1<<10))
		}
	}
}

func grpcSlowHeaders(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	go c.drain(nil)
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(inferPath), EndHeaders: true})
	return c.trickle(ctx, bytes.Clone(c.out.Bytes()), 1, 500*time.Millisecond)
}

func grpcIdle(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.hold()
}

func grpcAddress(t Target) string { return t.GRPC }
func httpAddress(t Target) string { return t.HTTP }

// silent connects and sends nothing.
func silent(address func(Target) string) func(context.Context, Target, *Tally) error {
	return func(ctx context.Context, t Target, tally *Tally) error {
		w, err := dial(ctx, address(t), tally)
		if err != nil {
			return err
		}
		defer w.Close()
		return w.hold()
	}
}

func grpcStreams(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	done := c.background(nil)
	for range 50 {
		for range 100 {
			c.call(streamPath)
		}
		if err := c.flush(); err != nil {
			return err
		}
		select { // so as not to take the machine's cores itself
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return <-done
}

var unreadMessage = sync.OnceValue(func() []byte { return Message(Model, unreadElements) })

// zeros is what large bodies are made of.
var zeros = make([]byte, 64<<20)

// grpcUnread makes calls with large answers that it does not let through.
func grpcUnread(settings []http2.Setting, ignore bool) func(context.Context, Target, *Tally) error {
	return func(ctx context.Context, t Target, tally *Tally) error {
		c, err := open(ctx, t, tally, settings...)
		if err != nil {
			return err
		}
		defer c.Close()
		var done <-chan error
		if ignore {
			c.framer.WriteWindowUpdate(0, 1<<31-1-65535)
		} else {
			done = c.background(nil)
		}
		message := unreadMessage()
		for range 8 {
			if err := c.send(c.call(inferPath), message, false, true); err != nil {
				return err
			}
		}
		if ignore {
			return c.ignore(ctx)
		}
		return <-done
	}
}

// grpcDecoupled asks for a million answers on each of eight streams and lets none
// through.
func grpcDecoupled(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally, closedWindow...)
	if err != nil {
		return err
	}
	defer c.Close()
	done := c.background(nil)
	message := marshal(&inferencepb.ModelInferRequest{
		ModelName:        Decoupled,
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, 1_000_000)},
	})
	for range 8 {
		if err := c.send(c.call(streamPath), message, false, false); err != nil {
			return err
		}
	}
	return <-done
}

// bomb is gzip of bombSize zero bytes.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(make([]byte, bombSize))
	w.Close()
	return b.Bytes()
})

func grpcGzip(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	for range 4 {
		id := c.call(inferPath, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
		if err := c.send(id, bomb(), true, true); err != nil {
			return err
		}
	}
	return c.answers(4)
}

// grpcWhole sends a message, reads the answer, and sends it again.
func grpcWhole(message func() []byte) func(context.Context, Target, *Tally) error {
	message = sync.OnceValue(message)
	return func(ctx context.Context, t Target, tally *Tally) error {
		c, err := open(ctx, t, tally)
		if err != nil {
			return err
		}
		defer c.Close()
		for {
			if err := c.send(c.call(inferPath), message(), false, true); err != nil {
				return err
			}
			if err := c.answers(1); err != nil {
				return err
			}
		}
	}
}

func grpcMalformed(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	good := marshal(&inferencepb.ModelInferRequest{
		ModelName: Model, Id: "1",
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
			Name: peer.Input, Datatype: "FP32", Shape: []int64{1, 4},
			Contents: &inferencepb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}},
		}},
		Outputs: []*inferencepb.ModelInferRequest_InferRequestedOutputTensor{{Name: peer.Output}},
	})
	for {
		if err := c.send(c.call(inferPath), spoil(good), false, true); err != nil {
			return err
		}
		if err := c.answers(1); err != nil {
			return err
		}
	}
}

// spoil returns the bytes with one to four of them changed, and sometimes cut.
func spoil(b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + rand.IntN(4) {
		b[rand.IntN(len(b))] = byte(rand.Uint32())
	}
	if rand.IntN(4) == 0 {
		b = b[:rand.IntN(len(b))]
	}
	return b
}

// grpcRestricted calls what the server keeps to those with a key, with a large
// message.
func grpcRestricted(ctx context.Context, t Target, tally *Tally) error {
	c, err := open(ctx, t, tally)
	if err != nil {
		return err
	}
	defer c.Close()
	done := c.background(nil)
	id := c.call("/inference.GRPCInferenceService/ModelStatistics")
	if err := c.send(id, zeros, false, true); err != nil {
		return err
	}
	return <-done
}
