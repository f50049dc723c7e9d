package kservegrpc

import (
	"bytes"
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/race"
)

const inferMethod = pb.GRPCInferenceService_ModelInfer_FullMethodName

// perCall makes n calls and returns what the process allocated for each.
func perCall(tb testing.TB, c *rawClient, msg []byte, n int) (mallocs, bytes float64) {
	tb.Helper()
	if race.Enabled {
		tb.Skip("the race detector makes pools forget, so allocations say nothing")
	}
	call := func() {
		if got, err := c.call(msg); err != nil || got == 0 {
			tb.Fatalf("got %d bytes, %v, want an answer", got, err)
		}
	}
	for range 50 {
		call()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		call()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

func TestModelInferAllocatesLittle(t *testing.T) {
	s := startServer(t, Options{})
	c := newRawClient(t, s.Addr(), inferMethod)
	mallocs, _ := perCall(t, c, frame(mustMarshal(t, floatsRequest(16))), 500)
	t.Logf("%.1f allocations a call", mallocs)
	if mallocs > 7 {
		t.Errorf("got %.1f allocations a call, want at most 7", mallocs)
	}
}

// A tensor of 602 KB goes to the model in the memory it was received in: what a
// call allocates is far less than a copy. (The sink model answers little, so
// the response does not count.)
func TestModelInferAllocatesNoCopyOfALargeTensor(t *testing.T) {
	s := startServer(t, Options{})
	req := floatsRequest(150528)
	req.ModelName = "sink"
	c := newRawClient(t, s.Addr(), inferMethod)
	_, size := perCall(t, c, frame(mustMarshal(t, req)), 100)
	t.Logf("%.0f bytes a call", size)
	if size > 100_000 {
		t.Errorf("got %.0f bytes allocated for a tensor of 602112, want at most 100000", size)
	}
}

func BenchmarkModelInferSmall(b *testing.B) { benchmarkInfer(b, "floats", 16) }
func BenchmarkModelInfer602KB(b *testing.B) { benchmarkInfer(b, "sink", 150528) }

// benchmarkInfer makes calls one after another over loopback. cpu-ns/op is the
// processor time of client and server together.
func benchmarkInfer(b *testing.B, model string, n int) {
	s := startServer(b, Options{})
	req := floatsRequest(n)
	req.ModelName = model
	msg := frame(mustMarshal(b, req))
	c := newRawClient(b, s.Addr(), inferMethod)
	b.ReportAllocs()
	b.SetBytes(int64(len(msg)))
	before := processorTime(b)
	for b.Loop() {
		if _, err := c.call(msg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func BenchmarkDecode(b *testing.B) {
	small, err := proto.Marshal(floatsRequest(16))
	if err != nil {
		b.Fatal(err)
	}
	large := mustMarshal(b, floatsRequest(150528))
	for name, data := range map[string][]byte{"small": small, "602KB": large} {
		var pieces mem.BufferSlice
		for rest := data; len(rest) > 0; rest = rest[min(16384, len(rest)):] {
			pieces = append(pieces, mem.SliceBuffer(rest[:min(16384, len(rest))]))
		}
		b.Run(name+"/own", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := newMessage()
				if err := m.decode(pieces, nil); err != nil {
					b.Fatal(err)
				}
				m.release()
			}
		})
		b.Run(name+"/standard", func(b *testing.B) {
			b.ReportAllocs()
			std := newCodec(nil).CodecV2
			for b.Loop() {
				if err := std.Unmarshal(pieces, new(pb.ModelInferRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A client may claim a message of 2 GB and send little of it.
func TestModelInferTakesMemoryAsDataArrives(t *testing.T) {
	s := startServer(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		c := newRawClient(t, s.Addr(), inferMethod)
		claim := append([]byte{0, 0x7f, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{1}, 100)...)
		if _, err := c.call(claim); err != nil {
			t.Fatalf("got %v, want the call ended by the server", err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("got %d bytes allocated for claims of 2 GB, want at most 64 MB", got)
	}
	if _, err := s.client.ModelInfer(context.Background(), floatsRequest(1)); err != nil {
		t.Errorf("a good request after it: got %v, want an answer", err)
	}
}
