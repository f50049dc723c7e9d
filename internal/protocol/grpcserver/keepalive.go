package grpcserver

import (
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/encoding"

	"shoal/internal/protocol/h2"
	"shoal/internal/reject"
)

// pings tracks how a client pings. It belongs to the goroutine that reads.
type pings struct {
	last    time.Time
	strikes int
}

// maxStrikes is how often a client may ping too soon; idlePing is how often it
// may ping without a call, where that is not permitted.
const (
	maxStrikes = 2
	idlePing   = 2 * time.Hour
)

// drainPing is sent with the notice that a connection drains: its answer shows
// that everything that the client sent before it knew has arrived.
var drainPing = [h2.PingLen]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'}

// drainTime is how long that answer may take.
const drainTime = 5 * time.Second

func (c *conn) onPing(h h2.Header) error {
	b, err := c.fixed(h, h2.PingLen, false)
	if err != nil {
		return err
	}
	data := [h2.PingLen]byte(b)
	if h.Flags.Has(http2.FlagPingAck) {
		if data == drainPing {
			c.drained()
		}
		return nil
	}
	c.mu.Lock()
	c.putLocked(h2.AppendPing(c.out.buf, http2.FlagPingAck, data))
	calls, answered := len(c.streams), c.answered
	c.answered = false
	c.mu.Unlock()
	c.throttle()
	if c.pings.count(time.Now(), answered, c.pingInterval(calls)) {
		c.closedBy(reject.TooManyPings, "")
		return connError{http2.ErrCodeEnhanceYourCalm, "too_many_pings"}
	}
	return nil
}

// pingInterval returns how often a client with that many calls may ping.
func (c *conn) pingInterval(calls int) time.Duration {
	policy := &c.server.opt.Enforcement
	if calls == 0 && !policy.PermitWithoutStream {
		return idlePing
	}
	return policy.MinTime
}

// count counts a ping and reports whether it is one too many. A ping after an
// answer of ours does not count.
func (p *pings) count(now time.Time, answered bool, interval time.Duration) bool {
	soon := p.last.Add(interval).After(now)
	p.last = now
	switch {
	case answered:
		p.strikes = 0
	case soon:
		p.strikes++
	}
	return p.strikes > maxStrikes
}

// startKeepalive pings the connection when it is silent, and ends it when it is
// old.
func (c *conn) startKeepalive() {
	k := &c.server.opt.Keepalive
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connClosed {
		return
	}
	c.silenceTimer = time.AfterFunc(k.Time, c.silent)
	c.timers = append(c.timers, c.silenceTimer)
	if k.MaxConnectionAge > 0 {
		// The jitter keeps clients that came together from reconnecting
		// together.
		age := time.Duration(float64(k.MaxConnectionAge) * (0.9 + 0.2*rand.Float64()))
		c.timers = append(c.timers, time.AfterFunc(age, c.old))
	}
}

// silent pings a silent client, and closes the connection of one that has not
// answered.
func (c *conn) silent() {
	k := &c.server.opt.Keepalive
	last := time.Unix(0, c.in.last.Load())
	c.mu.Lock()
	switch silence := time.Since(last); {
	case c.state == connClosed:
	case silence < k.Time:
		c.silenceTimer.Reset(k.Time - silence)
	case c.pinged.Before(last):
		c.pinged = time.Now()
		c.out.settle(h2.AppendPing(c.out.buf, 0, [h2.PingLen]byte{}))
		c.kickLocked()
		c.silenceTimer.Reset(k.Timeout)
	default:
		c.mu.Unlock()
		c.closedBy(reject.KeepaliveTimeout, "")
		c.end()
		return
	}
	c.mu.Unlock()
}

// old drains a connection that has reached its age, and ends it when its calls
// take too long.
func (c *conn) old() {
	c.drain("max_age")
	grace := c.server.opt.Keepalive.MaxConnectionAgeGrace
	if grace == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != connClosed {
		c.timers = append(c.timers, time.AfterFunc(grace, c.end))
	}
}

// drain tells the client to open no more streams and, once it knows, accepts
// none any more. The connection ends with its last call.
func (c *conn) drain(why string) {
	c.mu.Lock()
	if !c.greeted {
		c.mu.Unlock()
		c.end()
		return
	}
	defer c.mu.Unlock()
	if c.leaving || c.state != connOpen {
		return
	}
	c.leaving = true
	c.out.settle(h2.AppendGoAway(c.out.buf, h2.MaxWindow, http2.ErrCodeNo, why))
	c.out.settle(h2.AppendPing(c.out.buf, 0, drainPing))
	c.timers = append(c.timers, time.AfterFunc(drainTime, c.drained))
	c.kickLocked()
}

// drained accepts no more streams.
func (c *conn) drained() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving || c.state != connOpen {
		return
	}
	c.state = connDraining
	c.out.settle(h2.AppendGoAway(c.out.buf, c.lastID, http2.ErrCodeNo, ""))
	if len(c.streams) == 0 {
		c.lingerLocked()
		return
	}
	c.kickLocked()
}

// acceptedEncodings lists the compressions that requests may have.
func acceptedEncodings() string {
	list := []string{encoding.Identity}
	for _, name := range []string{"deflate", "gzip"} {
		if encoding.GetCompressor(name) != nil {
			list = append(list, name)
		}
	}
	return strings.Join(list, ",")
}
