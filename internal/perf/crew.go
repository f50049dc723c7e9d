package perf

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/load"
)

// A crew makes the load of one level. It is closed, each worker sending again
// when it has its answer, or open, a pacer handing out requests when they are
// due. Its life: start, stop (no further request is sent), wait.
type crew struct {
	messages []*load.Message
	keep     bool // answers are wanted
	limit    int64
	order    []int32   // which message is sent when; nil: in turn
	workers  []*worker // all there may be; in an open loop many stay idle
	// sequences, unless nil, makes the requests parts of sequences.
	sequences *sequencer

	stopping chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when all work has ended
	wg       sync.WaitGroup

	next    atomic.Uint64 // messages taken so far
	started atomic.Int64  // requests begun

	mu       sync.Mutex // protects the fields below
	idle     []*worker  // a stack: the worker that was last busy has the warmest connection
	running  int        // workers that have a goroutine
	busy     int
	maxBusy  int           // since it was last asked for
	freed    chan struct{} // buffered 1: a worker became idle
	overload bool          // a request was due while every worker was busy
	slots    []*sequence   // open loop: the sequences under way
	turn     int           // the one that is asked next
}

// newCrew returns a crew with a worker for each connection. After limit requests
// it stops by itself, unless limit is 0.
func newCrew(conns []load.Conn, messages []*load.Message, limit int64, keep bool) *crew {
	c := &crew{
		messages: messages, keep: keep, limit: limit,
		stopping: make(chan struct{}), done: make(chan struct{}), freed: make(chan struct{}, 1),
	}
	for _, conn := range conns {
		w := &worker{conn: conn, keep: keep}
		w.x.Keep = keep
		c.workers = append(c.workers, w)
	}
	return c
}

// expect makes the workers hold each answer against check.
func (c *crew) expect(check func(message int, answer []byte) error) {
	for _, w := range c.workers {
		w.check, w.x.Keep = check, true
	}
}

// startClosed lets every worker send until the crew is stopped.
func (c *crew) startClosed(ctx context.Context) {
	for _, w := range c.workers {
		c.wg.Go(func() {
			if c.sequences != nil {
				c.loopSequences(ctx, w)
			} else {
				c.loop(ctx, w)
			}
		})
	}
	go c.finish()
}

// finish says that all work has ended. The goroutine ends with the crew's own.
func (c *crew) finish() {
	c.wg.Wait()
	close(c.done)
}

func (c *crew) loop(ctx context.Context, w *worker) {
	pause := minPause
	for c.more(ctx) {
		i := c.message()
		if err := w.do(ctx, c.messages[i], i, 0); err == nil {
			pause = minPause
			continue
		}
		// A dead server says no so fast that asking again at once would take the
		// machine.
		if !c.sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

const (
	minPause = time.Millisecond
	maxPause = 64 * time.Millisecond
)

// sleep waits, and returns false when the crew stops meanwhile.
func (c *crew) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stopping:
	case <-ctx.Done():
	}
	return false
}

// more says whether another request may be sent, and counts it.
func (c *crew) more(ctx context.Context) bool {
	select {
	case <-c.stopping:
		return false
	default:
	}
	n := c.started.Add(1)
	return ctx.Err() == nil && (c.limit == 0 || n <= c.limit)
}

// message returns the next message in turn.
func (c *crew) message() int {
	n := c.next.Add(1) - 1
	if c.order != nil {
		return int(c.order[n%uint64(len(c.order))])
	}
	return int(n % uint64(len(c.messages)))
}

// stop lets no further request be sent. It may be called again.
func (c *crew) stop() { c.stopOnce.Do(func() { close(c.stopping) }) }

// wait waits for what is under way. When that takes longer than patience it closes
// the connections; it returns whether it did not have to.
func (c *crew) wait(patience time.Duration) bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-c.done:
		return true
	case <-t.C:
	}
	for _, w := range c.workers {
		_ = w.conn.Close() // what it had under way fails; there is nothing else to lose
	}
	<-c.done
	return false
}
