package engine

import (
	"errors"
	"sync"
	"testing"

	"shoal/internal/infer"
)

func TestLeasesEndOnceTheyAreClosedAndTheLastIsReleased(t *testing.T) {
	var l leases
	l.init()
	for range 2 {
		if !l.begin() {
			t.Fatal("got no lease, want two")
		}
	}
	l.end()
	l.close()
	if l.begin() || l.count() != 1 {
		t.Errorf("after close: got another lease or %d, want the one that was given before", l.count())
	}
	select {
	case <-l.ended:
		t.Error("ended with a lease left")
	default:
	}
	l.end()
	<-l.ended
	l.close() // again does nothing
	if l.begin() || l.count() != 0 {
		t.Errorf("at the end: got another lease or %d, want none", l.count())
	}
}

func TestALeaseThatIsReleasedTwicePanics(t *testing.T) {
	for _, closed := range []bool{false, true} {
		var l leases
		l.init()
		l.begin()
		l.end()
		if closed {
			l.close()
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("closed %v: the second release did not panic", closed)
				}
			}()
			l.end()
		}()
	}
}

func TestLeasesThatRaceWithCloseAreEitherRefusedOrAwaited(t *testing.T) {
	for range 200 {
		var l leases
		l.init()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for l.begin() {
					select {
					case <-l.ended:
						t.Error("ended while a lease was held")
					default:
					}
					l.end()
				}
			})
		}
		l.close()
		<-l.ended
		wg.Wait()
	}
}

func TestARequestWithALeaseIsServedAfterStop(t *testing.T) {
	for name, config := range map[string]string{"direct": oneInput, "batched": batchedInput} {
		e := start(t, repo(t, map[string]string{"m/config.pbtxt": config, "m/1/": ""}))
		lease, err := e.Acquire("m", 1)
		if err != nil {
			t.Fatal(err)
		}
		e.Drain()
		if e.Live() || e.Ready() || e.ModelReady("m", 1) {
			t.Errorf("%s: a draining engine is live, ready or has a ready model", name)
		}
		late, err := e.Acquire("m", 1)
		if err != nil {
			t.Fatalf("%s: a request that was on the way: %v", name, err)
		}
		late.Release()
		e.Stop()
		if _, err := e.Acquire("m", 1); !errors.Is(err, errExiting) {
			t.Errorf("%s: a new lease: got %v, want %v", name, err, errExiting)
		}
		r := infer.NewRequest()
		r.Hold(lease)
		sendZeros(t, lease.Version, r)
	}
}
