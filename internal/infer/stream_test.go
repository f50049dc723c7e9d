package infer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
	"shoal/internal/status"
)

// lent counts what is released.
type lent struct{ back int }

func (l *lent) Release() { l.back++ }

// sized returns a response of so many bytes whose memory l lends.
func sized(n int, l *lent) *infer.Response {
	resp := new(infer.Response)
	resp.AddOutput().Data = make([]byte, n)
	if l != nil {
		resp.Own(l)
	}
	return resp
}

func ignore(infer.Delivery) {}

func TestStreamGivesResponsesInOrderAndThenTheEnd(t *testing.T) {
	s := infer.NewStream(1<<20, ignore)
	for n := range 3 {
		if err := s.Send(sized(n, nil), false); err != nil {
			t.Fatal(err)
		}
	}
	s.Finish(nil)
	s.Finish(errors.New("too late to matter"))
	for n := range 3 {
		resp, final, err := s.Next(t.Context())
		if err != nil || final || len(resp.Outputs[0].Data) != n {
			t.Fatalf("response %d: got %v, final %v, %v", n, resp, final, err)
		}
	}
	if resp, final, err := s.Next(t.Context()); resp != nil || !final || err != nil {
		t.Errorf("end: got %v, final %v, %v, want nil, true, nil", resp, final, err)
	}
}

func TestStreamTakesNothingAfterTheFinalResponse(t *testing.T) {
	s := infer.NewStream(1<<20, ignore)
	if err := s.Send(sized(1, nil), true); err != nil {
		t.Fatal(err)
	}
	var l lent
	if err := s.Send(sized(1, &l), false); status.CodeOf(err) != status.Internal {
		t.Errorf("got %v, want an Internal error", err)
	}
	if l.back != 1 {
		t.Errorf("released %d times, want 1", l.back)
	}
	if _, final, _ := s.Next(t.Context()); !final {
		t.Error("got a first response that is not final, want final")
	}
}

func TestStreamErrorOfTheRequestIsItsEnd(t *testing.T) {
	s := infer.NewStream(1<<20, ignore)
	why := errors.New("worker died")
	s.Finish(why)
	if _, _, err := s.Next(t.Context()); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestStreamNextEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := infer.NewStream(1, ignore).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestStreamWaitHoldsTheSenderUntilTheClientReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := infer.NewStream(1<<20, ignore)
		if err := s.Send(sized(1<<19, nil), false); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- s.Wait() }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("got no wait (%v), want one: half of the room is taken", err)
		default:
		}
		if _, _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
}

func TestStreamWaitEndsWhenTheClientIsGone(t *testing.T) {
	s := infer.NewStream(1, ignore)
	if err := s.Send(sized(100, nil), false); err != nil {
		t.Fatalf("a response larger than the room: got %v, want it taken while nothing waits", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- s.Wait() }()
	why := status.Errorf(status.Cancelled, "gone")
	s.Cancel(why)
	if err := <-waited; !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestStreamWaitWhileReadEndsWithAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := infer.NewStream(1<<20, ignore)
		for range 4 {
			if err := s.Send(sized(1<<17, nil), false); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		waited := make(chan error, 1)
		go func() { waited <- s.WaitWhileRead(10 * time.Second) }()
		time.Sleep(7 * time.Second)
		if _, _, err := s.Next(t.Context()); err != nil { // it reads an eighth of a megabyte
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if got := time.Since(begin); got < 10*time.Second || got > 10200*time.Millisecond {
			t.Errorf("waited %v, want 10 s and an eighth", got)
		}
	})
}

// TestStreamDoesNotHoldItsSenderUpForASlowClient plays a client that takes 300 KB
// every five seconds.
func TestStreamDoesNotHoldItsSenderUpForASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := infer.NewStream(16<<20, ignore)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(5 * time.Second):
				}
				if resp, _, err := s.Next(ctx); err != nil || resp == nil {
					return
				}
			}
		}()
		begin := time.Now()
		var err error
		for err == nil { // until the stream is ended for its slow client
			if err = s.WaitWhileRead(10 * time.Second); err == nil {
				err = s.Send(sized(300<<10, nil), false)
			}
		}
		if got := time.Since(begin); got > 12*time.Second {
			t.Errorf("the sender was held up for %v, want 12 s at most", got)
		}
		cancel()
		<-done
	})
}

func TestStreamWaitWhileReadEndsWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := infer.NewStream(1<<20, ignore)
		if err := s.Send(sized(1<<19, nil), false); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		begin := time.Now()
		go func() { waited <- s.WaitWhileRead(10 * time.Second) }()
		time.Sleep(time.Second)
		if _, _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil || time.Since(begin) != time.Second {
			t.Errorf("got %v after %v, want nil after 1s", err, time.Since(begin))
		}
	})
}

func TestStreamEndsWhenASenderOverfillsIt(t *testing.T) {
	s := infer.NewStream(4096, ignore)
	var l lent
	sent := 0
	var err error
	for ; err == nil && sent < 100; sent++ {
		err = s.Send(sized(1000, &l), false)
	}
	if status.CodeOf(err) != status.Unavailable || sent != 3 {
		t.Fatalf("got %v at response %d, want Unavailable at the third", err, sent)
	}
	if l.back != 1 {
		t.Errorf("released %d, want the refused one", l.back)
	}
	if !s.Cancelled() {
		t.Error("the sender is not told to stop")
	}
	for range 2 {
		if _, _, err := s.Next(t.Context()); err != nil {
			t.Errorf("got %v, want what was sent before", err)
		}
	}
	if _, final, got := s.Next(t.Context()); !final || !errors.Is(got, err) {
		t.Errorf("got final %v, %v, want the end with %v", final, got, err)
	}
}

func TestStreamCancelReleasesWhatWaitsAndWhatComes(t *testing.T) {
	s := infer.NewStream(1<<20, ignore)
	var l lent
	if err := s.Send(sized(1, &l), false); err != nil {
		t.Fatal(err)
	}
	if s.Cancelled() {
		t.Error("got cancelled, want not yet")
	}
	why := status.Errorf(status.Cancelled, "gone")
	s.Cancel(why)
	s.Cancel(errors.New("again"))
	<-s.Done()
	if err := s.Send(sized(1, &l), false); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if l.back != 2 {
		t.Errorf("released %d, want 2", l.back)
	}
}

func TestStreamTellsWhatBecameOfEachResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var got []infer.Delivery
		s := infer.NewStream(1<<20, func(d infer.Delivery) { got = append(got, d) })
		after := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }
		step := func() { time.Sleep(time.Second) }

		step()
		resp := sized(1, nil)
		resp.OutputStart = time.Now()
		step()
		_ = s.Send(resp, false)
		step()
		_ = s.Send(&infer.Response{Err: errors.New("bad")}, false)
		step()
		s.Skip()
		step()
		s.Begin() // what passed since the last response is no work
		step()
		_ = s.Send(sized(1, nil), false)
		step()
		s.Cancel(status.Errorf(status.Cancelled, "gone"))
		step()
		s.Finish(status.Errorf(status.Cancelled, "stopped"))
		want := []infer.Delivery{
			{Index: 0, Outcome: infer.ResponseSuccess, Start: after(0), Output: after(1), End: after(2)},
			{Index: 1, Outcome: infer.ResponseFail, Start: after(2), Output: after(3), End: after(3)},
			{Index: 2, Outcome: infer.ResponseEmpty, Start: after(3), End: after(4)},
			{Index: 3, Outcome: infer.ResponseSuccess, Start: after(5), Output: after(6), End: after(6)},
			{Index: 4, Outcome: infer.ResponseCancel, Start: after(7), End: after(8)},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deliveries (-want +got):\n%s", diff)
		}
	})
}
