package engine

import (
	"testing"
	"time"
)

func TestBusyTimeGrowsWhileBatchesRun(t *testing.T) {
	from := time.Now()
	at := func(ms int) time.Time { return from.Add(time.Duration(ms) * time.Millisecond) }
	b := busyTime{from: from}
	check := func(ms, running, total int) {
		t.Helper()
		if n, sum := b.read(at(ms)); n != running || sum != time.Duration(total)*time.Millisecond {
			t.Errorf("at %d ms: got %d running, %v in sum, want %d and %d ms", ms, n, sum, running, total)
		}
	}
	check(5, 0, 0)
	b.start(at(10))
	check(9, 1, 0) // the clock was read before
	check(15, 1, 5)
	b.start(at(20))
	check(30, 2, 30)
	b.end(at(30))
	b.end(at(40))
	check(50, 0, 40)
	b.start(at(100_000_000)) // a day later
	check(100_000_007, 1, 47)
	b.end(at(100_000_010))
	check(200_000_000, 0, 50)
}
