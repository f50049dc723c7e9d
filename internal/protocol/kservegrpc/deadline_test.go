package kservegrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
)

// A fakeStream is a call without a client: it has one request and then waits.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context
	msgs chan []byte
}

func (s *fakeStream) Context() context.Context { return s.ctx }
func (s *fakeStream) SendMsg(any) error        { return errors.New("nothing is sent in these tests") }

func (s *fakeStream) RecvMsg(m any) error {
	select {
	case b := <-s.msgs:
		return m.(*message).decode(mem.BufferSlice{mem.SliceBuffer(b)}, nil)
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// A lateContext has a deadline that it does not keep, so that a call which waits
// for it hangs.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// At the deadline grpc resets the stream, which clients may take for a cancelled
// call. The server must have answered by then, whatever the model does.
func TestDeadlineIsAnsweredWhileTheModelRuns(t *testing.T) {
	s := startServer(t, Options{})
	for name, call := range map[string]func(*fakeStream) error{
		"unary": func(f *fakeStream) error {
			_, err := s.modelInfer(nil, f.ctx, f.RecvMsg, nil)
			return err
		},
		"stream": func(f *fakeStream) error { return s.modelStreamInfer(nil, f) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // as grpc does when a call is over
			f := &fakeStream{ctx: lateContext{ctx, time.Now().Add(50 * time.Millisecond)}, msgs: make(chan []byte, 1)}
			f.msgs <- mustMarshal(t, gatedRequest(1))
			err := call(f)
			if st := grpcstatus.Convert(err); st.Code() != codes.DeadlineExceeded || st.Message() != "Deadline Exceeded" {
				t.Errorf("got %v, want %v", err, codes.DeadlineExceeded)
			}
			<-s.gate.entered // it runs, or will
			s.gate.pass(1, nil)
		})
	}
}

func TestBeforeDeadlineLeavesAlmostAllOfTheTime(t *testing.T) {
	for _, d := range []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		early, cancelEarly := beforeDeadline(ctx)
		a, _ := ctx.Deadline()
		b, _ := early.Deadline()
		if lost := a.Sub(b); lost > 2*time.Millisecond || lost > d/10 {
			t.Errorf("%v: got %v cut off, want at most a tenth and 2ms", d, lost)
		}
		cancelEarly()
		cancel()
	}
	if early, cancel := beforeDeadline(t.Context()); early != t.Context() {
		t.Error("without a deadline: got another context, want the same")
	} else {
		cancel()
	}
}
