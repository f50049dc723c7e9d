package grpcserver

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/peer"

	"shoal/internal/connlimit"
	"shoal/internal/protocol/h2"
)

// Sizes that were measured with tensors of 602 KB on loopback: windows that do
// not slow a client down, and large frames for clients that use them. The
// connection's window is granted again as data arrives, a stream's when it is
// read.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	maxFrame     = 1 << 20
)

// ConnMemory is the memory of a connection without its calls. It counts against
// the budget and is never refused: the number of connections is bounded by it.
const ConnMemory = smallInput + 12<<10

// The memory of a call, and of a call with a stream of messages, without the
// messages: structures and stacks.
const (
	callMemory   = 1 << 10
	streamMemory = 64 << 10
)

// A conn is one connection.
type conn struct {
	server *Server
	nc     net.Conn // with TLS, once the handshake is done
	peer   peer.Peer

	// These belong to the goroutine that reads.
	in      input
	headers headerReader
	current *call // the call of the last frame
	pings   pings
	meter   meter

	socket  *nonBlocking // of the goroutine that writes; nil when there is none
	watch   watch        // protected by the server's looking
	written atomic.Int64 // bytes that the socket has accepted

	mu        sync.Mutex // protects the fields below
	inWindow  int64      // what the client may still send
	unacked   int64      // arrived and not yet granted again
	streams   map[uint32]*call
	lastID    uint32 // the highest stream that was opened
	charged   int64  // what its calls hold of the budget in addition to their messages
	streamed  int64  // the same of calls with a stream of messages
	arriving  int64  // how much of incomplete messages has arrived
	unsent    int64  // the rest of answers that are being sent
	runs      int    // calls of one message that run
	outWindow int64  // what the client lets us send
	settings  peerSettings
	out       output
	spare     output // what is being written while writing is set
	writing   bool
	blocking  bool // the goroutine that writes may wait for the client
	control   int  // bytes that the reader has queued and that are not written
	indexing  indexing
	block     []byte     // memory for the fields of a header
	answered  bool       // something was sent since the last ping
	waiting   callList   // calls that wait for the connection's window or for room in the output
	starved   callList   // calls that wait for the window of their stream
	receiving callList   // calls whose message is awaited
	sent      int64      // bytes of messages that were queued
	turn      *call      // the one of waiting that may send
	widest    int64      // the largest outWindow of a stream since there were none
	business  int        // payment by calls, in points of the meter
	readable  *sync.Cond // waits until answers are written or cut-off calls end
	early     recent     // streams that we ended before the client had
	cutOff    int        // calls that run although their streams are gone
	state     connState
	greeted   bool // the handshake is done
	leaving   bool // the client was told that the connection will drain
	timers    []*time.Timer

	silenceTimer *time.Timer
	pinged       time.Time // when it was pinged because it was silent
}

// open → draining → lingering → closed; any → closed.
//
// A draining connection accepts no new streams and lingers when it has none. A
// lingering one has sent its last frame and waits for the client to hang up.
type connState int

const (
	connOpen connState = iota
	connDraining
	connLingering
	connClosed
)

// peerSettings are the client's settings.
type peerSettings struct {
	window        int64 // of a new stream
	maxFrame      int
	maxHeaderList int64
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server:    s,
		nc:        nc,
		meter:     meter{last: time.Now()},
		receiving: callList{kind: listReceive},
		inWindow:  connWindow,
		streams:   make(map[uint32]*call),
		outWindow: h2.DefaultWindow,
		settings:  peerSettings{window: h2.DefaultWindow, maxFrame: h2.MinMaxFrame, maxHeaderList: -1},
	}
	c.readable = sync.NewCond(&c.mu)
	c.in.last.Store(time.Now().UnixNano())
	return c
}

// lingerTime is how long a client may take to hang up after its connection was
// ended: closing at once could lose data that it has not read.
const lingerTime = time.Second

// serve runs the connection until it is over.
func (c *conn) serve() {
	defer c.end()
	budget := c.server.budget()
	budget.Force(ConnMemory)
	defer func() { budget.Release(ConnMemory + int64(c.in.extra())) }()
	budget.Register(c)
	defer budget.Unregister(c)
	if err := c.handshake(); err != nil {
		c.refused(err)
		return
	}
	c.startKeepalive()
	err := c.read()
	var fault connError
	if errors.As(err, &fault) {
		c.faulty(fault)
		c.abort(fault)
		c.in.drain()
	}
}

// handshake secures the connection and exchanges the first frames.
func (c *conn) handshake() error {
	if err := c.nc.SetDeadline(time.Now().Add(c.server.opt.ConnectionTimeout)); err != nil {
		return err
	}
	raw := c.nc
	if creds := c.server.opt.Credentials; creds != nil {
		nc, info, err := creds.ServerHandshake(raw)
		if err != nil {
			return &tlsError{err}
		}
		c.mu.Lock()
		c.nc, c.peer.AuthInfo = nc, info
		c.mu.Unlock()
	}
	setUserTimeout(raw, c.server.opt.Keepalive.Timeout)
	if c.server.opt.Credentials == nil {
		c.socket = newNonBlocking(raw)
	}
	c.peer.Addr, c.peer.LocalAddr = c.nc.RemoteAddr(), c.nc.LocalAddr()
	c.in.init(c.nc, c.server.budget())
	c.headers.init()
	if _, err := c.nc.Write(c.greeting()); err != nil {
		return err
	}
	if err := c.preface(); err != nil {
		return err
	}
	if err := c.nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted = true
	return nil
}

// greeting returns the server's preface.
func (c *conn) greeting() []byte {
	list := []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: maxFrame},
		{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList},
	}
	if n := c.server.opt.MaxStreams; n > 0 {
		list = append(list, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n})
	}
	return h2.AppendNumber(h2.AppendSettings(nil, list), http2.FrameWindowUpdate, 0, connWindow-h2.DefaultWindow)
}

var errPreface = errors.New("the client does not speak HTTP/2 (with prior knowledge); send gRPC here")

// preface reads the client's preface.
func (c *conn) preface() error {
	b, err := c.in.take(len(http2.ClientPreface))
	if err != nil {
		return err
	}
	if !bytes.Equal(b, []byte(http2.ClientPreface)) {
		return errPreface
	}
	if b, err = c.in.peek(h2.HeaderLen); err != nil {
		return err
	}
	if h := h2.ParseHeader(b); h.Kind != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck) {
		return connError{http2.ErrCodeProtocol, "the first frame is no SETTINGS"}
	}
	return c.frame()
}

// end closes the connection and cuts off its calls.
func (c *conn) end() { c.endIf(func() bool { return true }) }

// endIf is end, if the condition holds under the mutex. It reports whether the
// connection is closed.
func (c *conn) endIf(conditionLocked func() bool) bool {
	c.mu.Lock()
	if c.state == connClosed || !conditionLocked() {
		defer c.mu.Unlock()
		return c.state == connClosed
	}
	c.state = connClosed
	calls := c.removeAllLocked()
	for _, t := range c.timers {
		t.Stop()
	}
	if !c.writing {
		c.out.reset()
	}
	c.readable.Broadcast()
	nc := c.nc
	c.mu.Unlock()
	_ = nc.Close()
	for _, s := range calls {
		s.cut()
	}
	return true
}

// abort tells the client its error and lingers.
func (c *conn) abort(fault connError) {
	c.mu.Lock()
	c.out.settle(h2.AppendGoAway(c.out.buf, c.lastID, fault.code, fault.text))
	calls := c.removeAllLocked()
	c.lingerLocked()
	c.mu.Unlock()
	for _, s := range calls {
		s.cut()
	}
}

// lingerLocked writes what is left and then waits, for a while, for the client
// to hang up.
func (c *conn) lingerLocked() {
	if c.state >= connLingering {
		return
	}
	c.state = connLingering
	// This also ends a write that the client does not read.
	_ = c.nc.SetDeadline(time.Now().Add(lingerTime))
	c.kickLocked()
}

// idleLocked reports whether the server waits for the client: no call has
// everything that it needs to run.
func (c *conn) idleLocked() bool { return c.runs == 0 && c.unsent == 0 }

// IdleSince implements connlimit.Conn: the connection is idle since something
// was last read from it.
func (c *conn) IdleSince() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.in.last.Load()
	if c.lastID == 0 {
		since -= connlimit.Unused
	}
	return since, c.idleLocked()
}

// CloseIdle implements connlimit.Conn. Unread bytes keep a connection only while it
// has no calls: a call that waits for memory may leave bytes unread for long.
func (c *conn) CloseIdle() bool {
	return c.endIf(func() bool { return c.idleLocked() && (len(c.streams) > 0 || !connlimit.Unread(c.nc)) })
}

// removeLocked removes a call from the connection and reports whether it was
// there. Unless it was answered, the caller must cut it off.
func (c *conn) removeLocked(s *call) bool {
	if s.ended.Load() {
		return false
	}
	s.ended.Store(true)
	delete(c.streams, s.id)
	s.unlist(listSend)
	s.unlist(listReceive)
	s.wakeLocked()
	c.passLocked(s)
	if !s.remoteClosed {
		c.early.add(s.id)
	}
	s.dropLocked()
	c.server.budget().Release(s.charged)
	c.charged -= s.charged
	if s.charged == streamMemory {
		c.streamed -= s.charged
	}
	c.arriving -= s.arriving
	s.charged, s.arriving = 0, 0
	if s.running {
		s.cutOff = true
		c.cutOff++
	}
	if len(c.streams) == 0 && c.state == connDraining {
		c.lingerLocked()
	}
	return true
}

func (c *conn) removeAllLocked() []*call {
	calls := make([]*call, 0, len(c.streams))
	for _, s := range c.streams {
		calls = append(calls, s)
	}
	for _, s := range calls {
		c.removeLocked(s)
	}
	return calls
}

// left counts a call whose handler has returned.
func (c *conn) left(s *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.running = false
	if !s.streams() {
		c.runs--
	}
	if s.cutOff {
		c.cutOff--
		c.readable.Broadcast()
	}
}
