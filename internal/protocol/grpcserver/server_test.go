package grpcserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestUnaryCallsOfAllSizesAreAnswered(t *testing.T) {
	s := start(t, Options{})
	for _, n := range []int{0, 1, 100, copySize, 16383, 65535, 1 << 20, 5_000_000, 17 << 20} {
		in := bytes.Repeat([]byte{7}, n)
		out, err := call1(testContext(t), s.conn, "Say", in)
		if err != nil || !bytes.Equal(out, in) {
			t.Errorf("%d bytes: got %d bytes, %v, want them back", n, len(out), err)
		}
	}
}

func TestCompressedCallsAreAnsweredInKind(t *testing.T) {
	s := start(t, Options{})
	in := bytes.Repeat([]byte("again "), 100_000)
	out, err := call1(testContext(t), s.conn, "Say", in, grpc.UseCompressor("gzip"))
	if err != nil || !bytes.Equal(out, in) {
		t.Errorf("got %d bytes, %v, want %d", len(out), err, len(in))
	}
}

func TestCallsThatFailHaveTheirStatus(t *testing.T) {
	s := start(t, Options{MaxReceive: 1000, MaxSend: 500})
	const odd = "50% of ümläut\n\x00\U0001F41F"
	for _, c := range []struct {
		method string
		in     string
		code   codes.Code
		text   string
	}{
		{"Fail", odd, codes.NotFound, odd},
		{"Fail", "", codes.NotFound, ""},
		{"Panic", "", codes.Internal, "internal error; the server's log has the details"},
		{"Nosuch", "", codes.Unimplemented, "unknown method Nosuch for service test.Echo"},
		{"Say", strings.Repeat("x", 2000), codes.ResourceExhausted, "grpc: received message larger than max (2003 vs. 1000)"},
		{"Say", strings.Repeat("x", 600), codes.ResourceExhausted, "trying to send message larger than max (603 vs. 500)"},
	} {
		_, err := call1(testContext(t), s.conn, c.method, []byte(c.in))
		if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
			t.Errorf("%s %q: got %v %q, want %v %q", c.method, c.in, st.Code(), st.Message(), c.code, c.text)
		}
	}
	err := s.conn.Invoke(testContext(t), "/no.Such/Method", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
	if st := status.Convert(err); st.Code() != codes.Unimplemented || st.Message() != "unknown service no.Such" {
		t.Errorf("got %v, want an unknown service", err)
	}
}

func TestMetadataGoesBothWays(t *testing.T) {
	s := start(t, Options{})
	ctx := metadata.AppendToOutgoingContext(testContext(t), "a", "1", "a", "2", "b-bin", "\x00\xff")
	var header, trailer metadata.MD
	out, err := call1(ctx, s.conn, "Headers", nil, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || string(out) != "/test.Echo/Headers" {
		t.Fatalf("got %q, %v, want the method", out, err)
	}
	got := fmt.Sprint(header["a"], header["b-bin"], trailer["c"])
	if want := fmt.Sprint([]string{"1", "2"}, []string{"\x00\xff"}, []string{"1", "2"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStreamsGoBothWays(t *testing.T) {
	s := start(t, Options{})
	st, err := s.conn.NewStream(testContext(t), &echoDesc.Streams[0], "/test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		in := bytes.Repeat([]byte{byte(i)}, i*i*100)
		if err := st.SendMsg(wrapperspb.Bytes(in)); err != nil {
			t.Fatal(err)
		}
		out := new(wrapperspb.BytesValue)
		if err := st.RecvMsg(out); err != nil || !bytes.Equal(out.GetValue(), in) {
			t.Fatalf("message %d: got %d bytes, %v, want %d", i, len(out.GetValue()), err, len(in))
		}
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := st.RecvMsg(new(wrapperspb.BytesValue)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestServerStreamsManyMessagesToASlowClient(t *testing.T) {
	s := start(t, Options{})
	st, err := s.conn.NewStream(testContext(t), &echoDesc.Streams[1], "/test.Echo/Count")
	if err != nil {
		t.Fatal(err)
	}
	const n = 2000 // of 2000 bytes: beyond all windows and buffers
	if err := st.SendMsg(wrapperspb.Bytes(make([]byte, n))); err != nil {
		t.Fatal(err)
	}
	_ = st.CloseSend()
	got := 0
	for ; ; got++ {
		if err := st.RecvMsg(new(wrapperspb.BytesValue)); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if got != n {
		t.Errorf("got %d messages, want %d", got, n)
	}
}

func TestCancelReachesTheHandler(t *testing.T) {
	s := start(t, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := call1(ctx, s.conn, "Wait", nil)
		failed <- err
	}()
	inside := <-s.echo.entered
	cancel()
	<-inside.Done()
	if err := <-failed; status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want it cancelled", err)
	}
	if _, err := call1(testContext(t), s.conn, "Say", nil); err != nil {
		t.Errorf("the next call: got %v, want an answer", err)
	}
}

func TestDeadlineReachesTheHandlerAndTheClient(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t)
	c.open(1, false, usual("Wait", "grpc-timeout", "50m")...)
	c.check(c.framer.WriteData(1, true, rawMessage(1)))
	inside := <-s.echo.entered
	if got := c.outcome(1); got != "DeadlineExceeded" {
		t.Errorf("got %s, want DeadlineExceeded", got)
	}
	<-inside.Done()
	if _, ok := inside.Deadline(); !ok || !errors.Is(inside.Err(), context.DeadlineExceeded) {
		t.Errorf("got deadline %v and %v inside, want one that has passed", ok, inside.Err())
	}
}

// TestADeadlineMayPassAtAnyMoment is for the race detector: the call ends while
// the reader begins it, or while its message arrives.
func TestADeadlineMayPassAtAnyMoment(t *testing.T) {
	s := start(t, Options{})
	for _, method := range []string{"Chat", "Say"} {
		c := s.raw(t)
		var end []string
		for i := range uint32(300) {
			id := 2*i + 1
			c.open(id, false, usual(method, "grpc-timeout", strconv.Itoa(1+int(i)%100)+"u")...)
			c.check(c.framer.WriteData(id, true, rawMessage(1)))
			if got := c.outcome(id); got != "OK" && got != "DeadlineExceeded" && got != "RST CANCEL" {
				end = append(end, got)
			}
		}
		if len(end) > 0 {
			t.Errorf("%s: got %v, want OK, DeadlineExceeded or RST CANCEL", method, end)
		}
	}
}

func TestLostConnectionReachesTheHandler(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t)
	c.open(1, false, usual("Wait")...)
	c.check(c.framer.WriteData(1, true, rawMessage(3)))
	inside := <-s.echo.entered
	_ = c.conn.Close()
	<-inside.Done()
}

func TestGracefulStopFinishesCallsAndTakesNoMore(t *testing.T) {
	s := start(t, Options{})
	answered := make(chan error, 1)
	go func() {
		_, err := call1(testContext(t), s.conn, "Wait", []byte("x"))
		answered <- err
	}()
	<-s.echo.entered
	stopped := make(chan struct{})
	go func() { s.GracefulStop(); close(stopped) }()
	// New connections are refused at once.
	deadline := time.Now().Add(testTimeout)
	for {
		late := s.dial(t)
		_, err := call1(testContext(t), late, "Say", nil)
		_ = late.Close()
		if err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a new connection is still served")
		}
	}
	select {
	case <-stopped:
		t.Error("stopped before the call was over")
	default:
	}
	close(s.echo.release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: got %v, want its answer", err)
	}
	<-stopped
}

// A call that meets the end of the server is answered or may be tried elsewhere.
func TestGracefulStopUnderLoadBreaksNoCall(t *testing.T) {
	s := start(t, Options{})
	ctx := testContext(t)
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		conn := s.dial(t)
		for range 4 {
			wg.Go(func() {
				for {
					_, err := call1(ctx, conn, "Say", make([]byte, 50_000))
					if err != nil {
						if !strings.Contains(err.Error(), "connection refused") {
							t.Errorf("got %v, want an answer or no connection", err)
						}
						return
					}
					answered.Add(1)
				}
			})
		}
	}
	for answered.Load() < 100 && ctx.Err() == nil {
		runtime.Gosched()
	}
	s.GracefulStop()
	wg.Wait()
}

func TestStopCutsCallsOff(t *testing.T) {
	s := start(t, Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := call1(testContext(t), s.conn, "Wait", nil)
		failed <- err
	}()
	<-s.echo.entered
	s.Stop()
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want %v", err, codes.Unavailable)
	}
}

// TestManyClientsWithFaultsAtOnce is for the race detector.
func TestManyClientsWithFaultsAtOnce(t *testing.T) {
	s := start(t, Options{MaxStreams: 50, Runners: 4})
	ctx, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	for i := range 6 {
		conn := s.dial(t)
		for j := range 4 {
			wg.Go(func() { misbehave(ctx, t, conn, i*4+j) })
		}
	}
	wg.Wait()
	if _, err := call1(testContext(t), s.conn, "Say", nil); err != nil {
		t.Errorf("afterwards: got %v, want an answer", err)
	}
	s.GracefulStop()
}

// misbehave makes calls until ctx ends, some of which it abandons.
func misbehave(ctx context.Context, t *testing.T, conn *grpc.ClientConn, seed int) {
	for n := seed; ctx.Err() == nil; n++ {
		in := bytes.Repeat([]byte{byte(n)}, (n*7919)%300_000)
		call, cancel := context.WithTimeout(ctx, testTimeout)
		method := "Say"
		switch n % 4 {
		case 1:
			cancel()
			call, cancel = context.WithTimeout(ctx, time.Duration(n%7)*100*time.Microsecond)
		case 2:
			method = "Wait"
			call, cancel = context.WithTimeout(ctx, time.Millisecond)
		case 3:
			st, err := conn.NewStream(call, &echoDesc.Streams[0], "/test.Echo/Chat")
			if err == nil {
				_ = st.SendMsg(wrapperspb.Bytes(in))
			}
			cancel()
			continue
		}
		out, err := call1(call, conn, method, in)
		cancel()
		if err == nil && !bytes.Equal(out, in) {
			t.Errorf("got %d other bytes, want %d", len(out), len(in))
		}
		if c := status.Code(err); err != nil && ctx.Err() == nil && c != codes.Canceled && c != codes.DeadlineExceeded {
			t.Errorf("got %v, want an answer or an end that was asked for", err)
		}
	}
}
