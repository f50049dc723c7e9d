package drive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/load"
)

// Options say what a Generator sends.
type Options struct {
	Messages []*load.Message
	// Order says which message is sent when; nil: in turn.
	Order []int32
	// Limit is after how many requests the generator stops by itself; 0: never.
	Limit int64
	// Keep asks for every request and its answer.
	Keep bool
	// Check, unless nil, looks at each answer. The run ends with its first error.
	Check func(message int, answer []byte) error
	// Sequences, unless nil, makes the requests parts of sequences.
	Sequences *Sequencer
}

// A Generator generates the load of one level. In a closed loop each caller
// sends again when it has its answer. In an open loop a pacer gives requests to
// callers when they are due.
type Generator struct {
	Options
	Callers []*Caller // in an open loop many stay idle

	stopping chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when all work has ended
	wg       sync.WaitGroup

	next    atomic.Uint64 // number of messages taken
	started atomic.Int64  // requests begun

	mu      sync.Mutex // protects the fields below
	idle    []*Caller  // a stack: the caller that was last busy has the warmest connection
	running int        // callers that have a goroutine
	busy    int
	peak    int           // the most that were busy since the last call of Peak
	freed   chan struct{} // buffered 1: a caller became idle
	slots   []*sequence   // open loop: the sequences under way
	turn    int           // index of the next one to ask
}

// New returns a generator with a caller for each connection.
func New(conns []load.Conn, o Options) *Generator {
	g := &Generator{Options: o, stopping: make(chan struct{}), done: make(chan struct{}), freed: make(chan struct{}, 1)}
	for _, conn := range conns {
		c := &Caller{conn: conn, keep: o.Keep, check: o.Check}
		c.x.Keep = o.Keep || o.Check != nil
		g.Callers = append(g.Callers, c)
	}
	return g
}

// StartClosed lets every caller send until the generator is stopped.
func (g *Generator) StartClosed(ctx context.Context) {
	for _, c := range g.Callers {
		g.wg.Go(func() {
			if g.Sequences != nil {
				g.loopSequences(ctx, c)
			} else {
				g.loop(ctx, c)
			}
		})
	}
	go g.finish()
}

// finish closes done when all work has ended. The goroutine ends with the
// generator's others.
func (g *Generator) finish() {
	g.wg.Wait()
	close(g.done)
}

func (g *Generator) loop(ctx context.Context, c *Caller) {
	pause := minPause
	for g.another(ctx) {
		i := g.message()
		err := c.do(ctx, g.Messages[i], i, 0)
		if !g.backOff(ctx, err, &pause) {
			return
		}
	}
}

const (
	minPause = time.Millisecond
	maxPause = 64 * time.Millisecond
)

// backOff waits after a failed request, longer each time: a dead server refuses
// so fast that repeating at once would use up the CPU. It returns false when
// the generator stops.
func (g *Generator) backOff(ctx context.Context, err error, pause *time.Duration) bool {
	if err == nil {
		*pause = minPause
		return true
	}
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(2**pause, maxPause)
	select {
	case <-t.C:
		return true
	case <-g.stopping:
	case <-ctx.Done():
	}
	return false
}

// another reports whether another request may be sent, and counts it.
func (g *Generator) another(ctx context.Context) bool {
	select {
	case <-g.stopping:
		return false
	default:
	}
	n := g.started.Add(1)
	return ctx.Err() == nil && (g.Limit == 0 || n <= g.Limit)
}

// message returns the next message in turn.
func (g *Generator) message() int {
	n := g.next.Add(1) - 1
	if g.Order != nil {
		return int(g.Order[n%uint64(len(g.Order))])
	}
	return int(n % uint64(len(g.Messages)))
}

// Stop prevents further requests. It may be called again.
func (g *Generator) Stop() { g.stopOnce.Do(func() { close(g.stopping) }) }

// Done is closed when all requests have ended.
func (g *Generator) Done() <-chan struct{} { return g.done }

// Wait waits for the requests in flight. If that takes longer than patience, it
// closes the connections and returns false.
func (g *Generator) Wait(patience time.Duration) bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-g.done:
		return true
	case <-t.C:
	}
	for _, c := range g.Callers {
		_ = c.conn.Close() // its request fails; nothing else is lost
	}
	<-g.done
	return false
}

// InFlight returns how many requests are under way. Each caller of a closed loop
// has one.
func (g *Generator) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running > 0 {
		return g.busy
	}
	return len(g.Callers)
}

// Peak returns the most requests of an open loop that were in flight at once
// since the last call.
func (g *Generator) Peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	peak := g.peak
	g.peak = g.busy
	return peak
}
