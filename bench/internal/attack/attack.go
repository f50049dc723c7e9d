// Package attack has clients that do to a server what no good client does:
// announce and not send, trickle, never read, unpack to a thousand times the
// size, open connections and streams and leave them, send floods of control
// frames. The test of bench/attack runs each kind by itself with figures, and
// `make attack` all of them together for minutes.
//
// Every attack is bounded: in its connections by its caller, in time by its
// context, and it goes to the addresses that it is given, on loopback.
package attack

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shoal/bench/internal/ask"
)

// The models that the attacks ask: Model must give INPUT0 of FP32 [-1, -1] back as
// OUTPUT0; Decoupled must answer as often as IN says.
const (
	Model     = "any"
	Decoupled = "square"
)

// Models returns both, of built-in backends.
func Models() []ask.Model {
	return []ask.Model{ask.Identity(Model, -1), ask.Square(Decoupled)}
}

// A Target is the server that is attacked.
type Target struct {
	HTTP, GRPC string // addresses
	Region     string // a sparse file in /dev/shm, by its key; empty when the server takes none
}

// A Tally counts what an attack did and what became of it, and holds it to a
// rate. It is safe for concurrent use.
type Tally struct {
	Bytes  atomic.Int64 // sent
	Conns  atomic.Int64 // connections made
	Closed atomic.Int64 // closed by the server, or refused

	// Rate is the most bytes a second of all connections together; 0 is no limit.
	// It keeps the attackers from taking the machine's cores themselves.
	Rate int64
	pace sync.Mutex // protects due
	due  time.Time  // when the next bytes may be sent
}

// wait waits until n more bytes may be sent.
func (t *Tally) wait(ctx context.Context, n int) {
	if t.Rate == 0 {
		return
	}
	t.pace.Lock()
	if now := time.Now(); t.due.Before(now) {
		t.due = now
	}
	pause := time.Until(t.due)
	t.due = t.due.Add(time.Duration(float64(n) / float64(t.Rate) * float64(time.Second)))
	t.pace.Unlock()
	if pause <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// A Class is a kind of attack.
type Class struct {
	Name  string
	About string
	// Conns is how many connections it has in a test of this class alone.
	Conns int
	// Rate is its bytes a second in a test of this class alone; 0 leaves it to the
	// test.
	Rate int64
	// Flags are what the server must be started with for it to apply.
	Flags []string
	// Shared says that it needs the target's region of shared memory.
	Shared bool
	// Act attacks over one connection until the server closes it, the context
	// ends, or it is done; it is then called again.
	Act func(ctx context.Context, t Target, tally *Tally) error
	// Flood is set instead of Act when the class sends control frames over
	// gRPC, whose cost is held against that of another server.
	Flood *Flood
}

// All returns all classes.
func All() []Class {
	return slices.Concat(GRPC(), HTTP(), SharedMemory(), Control())
}

// Run attacks with so many connections until the context ends.
func (c Class) Run(ctx context.Context, t Target, conns int, tally *Tally) {
	act := c.Act
	if c.Flood != nil {
		act = c.Flood.act
	}
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := act(ctx, t, tally); err != nil && ctx.Err() == nil {
					tally.Closed.Add(1)
				}
				rest(ctx)
			}
		})
	}
	wg.Wait()
}

// between is the pause before a connection is made anew: an attacker whose
// connections are refused does not get to try as often as it can.
const between = 20 * time.Millisecond

func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(between):
	}
}

// A wire is a connection that counts what is sent. It is closed when the
// context ends.
type wire struct {
	net.Conn
	ctx   context.Context // of the attack: writes wait for their turn
	tally *Tally
	stop  func() bool
}

func dial(ctx context.Context, address string, tally *Tally) (*wire, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tally.Conns.Add(1)
	return &wire{c, ctx, tally, context.AfterFunc(ctx, func() { c.Close() })}, nil
}

// Write sends in pieces, each when its turn has come.
func (w *wire) Write(b []byte) (sent int, err error) {
	for len(b) > 0 && err == nil {
		var n int
		next := b[:min(len(b), turn)]
		w.tally.wait(w.ctx, len(next))
		n, err = w.Conn.Write(next)
		w.tally.Bytes.Add(int64(n))
		sent += n
		b = b[n:]
	}
	return sent, err
}

// turn is how many bytes a connection sends before another may.
const turn = 64 << 10

func (w *wire) Close() error {
	w.stop()
	return w.Conn.Close()
}

// hold keeps the connection until the server closes it or the context ends,
// and throws away what comes.
func (w *wire) hold() error {
	b := make([]byte, 4096)
	for {
		if _, err := w.Read(b); err != nil {
			return err
		}
	}
}

// ignore keeps the connection without reading it until the context ends.
func (w *wire) ignore(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// trickle sends the bytes in pieces with a pause after each.
func (w *wire) trickle(ctx context.Context, b []byte, piece int, pause time.Duration) error {
	for len(b) > 0 {
		n := min(piece, len(b))
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}
