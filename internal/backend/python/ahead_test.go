package python

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"shoal/internal/infer"
)

// startAhead starts an instance whose worker gets batches ahead, as on a GPU.
func startAhead(t *testing.T) *instance {
	in := startPlay(t, Options{})
	in.current.Load().mem.pinned = true
	return in
}

func TestAWorkerWithoutAGPUGetsOneBatchAtATime(t *testing.T) {
	in := startPlay(t, Options{})
	first, leave, ran := runHeld(t, in)
	second := play("", 2, 9)
	turn, next := runAhead(in, second)
	leave()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if err := has(in, 1); err != nil {
		t.Error("the second batch was sent before its turn")
	}
	close(turn)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	first.Release()
	second.Release()
}

// A testTurn is a turn that comes when the test says so.
type testTurn chan struct{}

func (t testTurn) Await() { <-t }

func (t testTurn) Come() bool {
	select {
	case <-t:
		return true
	default:
		return false
	}
}

// runAhead runs a batch whose turn comes with the end of the channel.
func runAhead(in *instance, r *infer.Request) (testTurn, <-chan error) {
	turn := make(testTurn)
	return turn, runAt(in, r, turn)
}

func runAt(in *instance, r *infer.Request, turn testTurn) <-chan error {
	ran := make(chan error, 1)
	b := batchOf(r)
	b.Turn = turn
	go func() { ran <- in.Run(b) }()
	return ran
}

// runHeld runs a batch that lasts until leave is called, and returns when the
// worker runs it.
func runHeld(t *testing.T, in *instance) (r *infer.Request, leave func(), ran <-chan error) {
	t.Helper()
	r = play("until_cancelled", 1, 1)
	leaving, leave := context.WithCancel(t.Context())
	r.Context = leaving
	turn := make(testTurn)
	close(turn)
	ran = runAt(in, r, turn)
	eventually(t, 10*time.Second, func() error { return watched(in) })
	return r, leave, ran
}

// bothAnswered waits for a batch and, in its turn, for the next, and checks what they answer.
func bothAnswered(t *testing.T, first, second *infer.Request, ran <-chan error, turn testTurn, next <-chan error) {
	t.Helper()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	close(turn)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	for _, r := range []*infer.Request{first, second} {
		sameAsInput(t, r)
		r.Release()
	}
}

// has fails until the worker has been sent so many batches in all.
func has(in *instance, sent uint64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sequence != sent {
		return errors.New("it has not been sent")
	}
	return nil
}

func TestTheNextBatchIsInTheWorkerBeforeTheLastIsAnswered(t *testing.T) {
	in := startAhead(t)
	sent := uint64(0)
	for range 3 {
		first, leave, ran := runHeld(t, in)
		second := play("", 2, 9)
		turn, next := runAhead(in, second)
		sent += 2
		eventually(t, 10*time.Second, func() error { return has(in, sent) })
		leave()
		bothAnswered(t, first, second, ran, turn, next)
	}
}

func TestABatchThatIsReadyEarlyIsSentAfterTheOneBeforeIt(t *testing.T) {
	in := startAhead(t)
	second := play("", 1, 5)
	turn, next := runAhead(in, second)
	eventually(t, 10*time.Second, func() error {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.next == nil {
			return errors.New("it is not ready")
		}
		return nil
	})
	first, leave, ran := runHeld(t, in)
	eventually(t, 10*time.Second, func() error { return has(in, 2) })
	leave()
	bothAnswered(t, first, second, ran, turn, next)
}

func TestADyingWorkerFailsTheBatchItRunsAndNotTheNext(t *testing.T) {
	in := startAhead(t)
	first, leave, ran := runHeld(t, in)
	defer leave()
	second := play("", 1, 5)
	turn, next := runAhead(in, second)
	eventually(t, 10*time.Second, func() error { return has(in, 2) })
	if err := syscall.Kill(in.current.Load().process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err == nil {
		t.Error("the batch that ran: got no error, want one")
	}
	first.Release()
	close(turn)
	if err := <-next; err != nil {
		t.Errorf("the batch that it had not begun: %v", err)
	}
	sameAsInput(t, second)
	second.Release()
}

func TestABatchThatWasTakenAheadIsLostWithItsWorker(t *testing.T) {
	in := startAhead(t)
	first, leave, ran := runHeld(t, in)
	second := play("die", 1, 5)
	turn, next := runAhead(in, second)
	eventually(t, 10*time.Second, func() error { return has(in, 2) })
	dying := in.current.Load()
	leave()
	if err := <-ran; err != nil {
		t.Errorf("the batch that was answered: %v", err)
	}
	sameAsInput(t, first)
	<-dying.Done() // before the turn of the batch that killed it
	close(turn)
	if err := <-next; err == nil {
		t.Error("the batch that the worker died of: got no error, want one")
	}
	first.Release()
	second.Release()
	third := play("", 1, 6)
	if err := in.Run(batchOf(third)); err != nil {
		t.Fatalf("after it: %v", err)
	}
	sameAsInput(t, third)
	third.Release()
}
