package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

const decoupled = "model_transaction_policy { decoupled: true }"

// streamed is what one request got.
type streamed struct {
	sizes []int // of the responses' outputs; -1 for an error, -2 for an empty end
	final bool
	err   error
}

// askStream sends a request of one row and collects what comes.
func askStream(ctx context.Context, v *Version) streamed {
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	var got streamed
	got.err = v.InferStream(ctx, r, func(resp *infer.Response, final bool) error {
		size := -2
		if resp != nil {
			size = len(resp.Outputs)
		}
		if resp != nil && resp.Err != nil {
			size = -1
		}
		got.sizes, got.final = append(got.sizes, size), final
		return nil
	})
	return got
}

func response() *infer.Response {
	resp := new(infer.Response)
	resp.AddOutput().Name = "OUT"
	return resp
}

func TestStreamedResponsesArriveWhileTheExecutionRunsAndAfterIt(t *testing.T) {
	dir := fakeRepo(t, decoupled)
	synctest.Test(t, func(t *testing.T) {
		v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
			s := b.Requests[0].Stream
			_ = s.Send(response(), false)
			time.Sleep(time.Second)
			go func() {
				time.Sleep(time.Second)
				_ = s.Send(response(), false)
				s.Finish(nil)
			}()
			return nil
		}})
		begin := time.Now()
		var at []time.Duration
		r := infer.NewRequest()
		defer r.Release()
		r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
		err := v.InferStream(t.Context(), r, func(*infer.Response, bool) error {
			at = append(at, time.Since(begin))
			return nil
		})
		if err != nil || len(at) != 3 || at[0] != 0 || at[1] != 2*time.Second || at[2] != 2*time.Second {
			t.Errorf("got %v at %v, want the responses at 0 and 2s and the end at 2s", err, at)
		}
		stats := v.snapshot()
		if stats.Success.Count != 1 || stats.Success.Ns != uint64(2*time.Second) || stats.ExecutionCount != 1 || stats.ComputeInfer.Ns != uint64(time.Second) {
			t.Errorf("got success %v, %d executions of %v, want one of 2s, one of 1s", stats.Success, stats.ExecutionCount, stats.ComputeInfer)
		}
		if len(stats.Responses) != 2 || stats.Responses[1].Success.Ns != uint64(2*time.Second) || stats.FirstResponseTime.Sum != 0 {
			t.Errorf("got responses %v, first after %v s, want two, the second after 2s", stats.Responses, stats.FirstResponseTime.Sum)
		}
	})
}

func TestAnInstanceIsFreeWhileItsResponsesAreStillComing(t *testing.T) {
	dir := fakeRepo(t, decoupled)
	synctest.Test(t, func(t *testing.T) {
		v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
			s := b.Requests[0].Stream
			go func() {
				time.Sleep(time.Second)
				s.Finish(nil)
			}()
			return nil
		}})
		begin := time.Now()
		all := make(chan streamed)
		for range 10 {
			go func() { all <- askStream(t.Context(), v) }()
		}
		for range 10 {
			if got := <-all; got.err != nil || !got.final {
				t.Errorf("got %v, want an empty end", got)
			}
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("ten requests took %v on one instance, want 1s", took)
		}
	})
}

func TestCancellingAStreamReachesTheSenderAtOnce(t *testing.T) {
	dir := fakeRepo(t, decoupled)
	synctest.Test(t, func(t *testing.T) {
		told := make(chan time.Time, 1)
		v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
			s := b.Requests[0].Stream
			_ = s.Send(response(), false)
			go func() {
				<-s.Done()
				told <- time.Now()
				s.Finish(status.Errorf(status.Cancelled, "stopped"))
			}()
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		at := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, cancel)
		got := askStream(ctx, v)
		if status.CodeOf(got.err) != status.Cancelled || len(got.sizes) != 1 {
			t.Errorf("got %v, want one response and then Cancelled", got)
		}
		if when := <-told; !when.Equal(at) {
			t.Errorf("the sender knew at %v, want %v", when, at)
		}
		synctest.Wait()
		if s := v.snapshot(); s.Failures["CANCELED"] != 1 || s.Responses[1].Cancel.Count != 1 {
			t.Errorf("got %v and %v, want one cancelled request, at its second response", s.Failures, s.Responses)
		}
	})
}

func TestACancelledStreamDoesNotWaitForASenderThatGoesOn(t *testing.T) {
	dir := fakeRepo(t, decoupled)
	synctest.Test(t, func(t *testing.T) {
		later := make(chan error, 1)
		v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
			s := b.Requests[0].Stream
			go func() {
				time.Sleep(time.Hour)
				later <- s.Send(response(), true)
			}()
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		got := askStream(ctx, v)
		if status.CodeOf(got.err) != status.DeadlineExceeded || time.Since(begin) != time.Second {
			t.Errorf("got %v after %v, want DeadlineExceeded after 1s", got.err, time.Since(begin))
		}
		if err := <-later; status.CodeOf(err) != status.DeadlineExceeded {
			t.Errorf("the late response: got %v, want DeadlineExceeded", err)
		}
	})
}

func TestErrorsOfAStream(t *testing.T) {
	boom := status.Errorf(status.Internal, "boom")
	for _, c := range []struct {
		name  string
		run   func(*infer.Request) error
		want  streamed
		fails uint64
	}{
		{"the execution fails", func(*infer.Request) error { return boom }, streamed{err: boom}, 1},
		{"the request fails", func(r *infer.Request) error { r.Err = boom; return nil }, streamed{err: boom}, 1},
		{"it fails after a response", func(r *infer.Request) error { _ = r.Stream.Send(response(), false); return boom }, streamed{sizes: []int{1}, err: boom}, 1},
		{"an error is sent and more follows", func(r *infer.Request) error {
			_ = r.Stream.Send(&infer.Response{Err: boom}, false)
			return r.Stream.Send(response(), true)
		}, streamed{sizes: []int{-1, 1}, final: true}, 0},
		{"the end is sent with an error", func(r *infer.Request) error { r.Stream.Finish(boom); return nil }, streamed{err: boom}, 1},
		{"it answers as an ordinary model", func(r *infer.Request) error { r.Response.AddOutput().Name = "OUT"; return nil }, streamed{sizes: []int{1}, final: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := fakeVersion(t, fakeRepo(t, decoupled), &backendtest.Fake{OnRun: func(b *infer.Batch) error { return c.run(b.Requests[0]) }})
			got := askStream(t.Context(), v)
			if !errors.Is(got.err, c.want.err) || got.final != c.want.final || len(got.sizes) != len(c.want.sizes) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			for i := range got.sizes {
				if got.sizes[i] != c.want.sizes[i] {
					t.Errorf("response %d: got %d, want %d", i, got.sizes[i], c.want.sizes[i])
				}
			}
			if s := v.snapshot(); s.Fail.Count != c.fails || s.Success.Count != 1-c.fails {
				t.Errorf("counted %d failures and %d successes, want %d and %d", s.Fail.Count, s.Success.Count, c.fails, 1-c.fails)
			}
		})
	}
}

func TestAReceiverThatStopsEndsTheRequest(t *testing.T) {
	stopped := make(chan error, 1)
	v := fakeVersion(t, fakeRepo(t, decoupled), &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		s := b.Requests[0].Stream
		_ = s.Send(response(), false)
		<-s.Done()
		stopped <- s.Send(response(), false)
		return nil
	}})
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, 2}, eightBytes))
	enough := errors.New("enough")
	if err := v.InferStream(t.Context(), r, func(*infer.Response, bool) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want %v", err, enough)
	}
	if err := <-stopped; status.CodeOf(err) != status.Cancelled {
		t.Errorf("the sender got %v, want Cancelled", err)
	}
}

func TestAnOrdinaryModelHasOneFinalResponse(t *testing.T) {
	v := fakeVersion(t, fakeRepo(t, ""), &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		b.Requests[0].Response.AddOutput().Name = "OUT"
		return nil
	}})
	if got := askStream(t.Context(), v); got.err != nil || !got.final || len(got.sizes) != 1 {
		t.Errorf("got %v, want one final response", got)
	}
}

func TestInferRefusesADecoupledModel(t *testing.T) {
	v := fakeVersion(t, fakeRepo(t, decoupled), &backendtest.Fake{})
	if err := ask(t.Context(), v, 1); status.CodeOf(err) != status.Unsupported {
		t.Errorf("got %v, want Unsupported", err)
	}
}

func TestResponsesBeyondTheLastIndexAreCountedThere(t *testing.T) {
	var table responseTable
	for _, i := range []int{0, maxResponseIndex - 1, maxResponseIndex, 1 << 40} {
		table.add(infer.Delivery{Index: i})
	}
	rows := table.list()
	if len(rows) != maxResponseIndex || rows[maxResponseIndex-1].Success.Count != 3 {
		t.Errorf("got %d rows, %d in the last, want %d and 3", len(rows), rows[len(rows)-1].Success.Count, maxResponseIndex)
	}
}
