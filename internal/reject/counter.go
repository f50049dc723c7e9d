package reject

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// NoVersion is the version of a request that reached none.
const NoVersion = -1

// A Request is a request that was rejected.
type Request struct {
	Protocol Protocol
	Client   net.Addr
	Model    string // as the client wrote it; empty when it got no further
	Version  int64  // likewise; infer.LatestVersion when it asked for none
	Reason   Reason
	Text     string // what the client was told
}

// A Lookup says whether a model exists, and which version a request for version
// gets: NoVersion when that is not there.
type Lookup func(model string, version int64) (exists bool, number int64)

// A Counter counts what is turned away, and logs it at level Debug, a few lines
// per second and reason. All methods may be called from any goroutine, and on a
// nil Counter, which does nothing.
type Counter struct {
	lookup Lookup
	log    *slog.Logger

	closed [ProtocolCount][CloseCount]atomic.Uint64
	server counts // requests for no model that exists

	requestLines [ReasonCount]limiter
	closeLines   [CloseCount]limiter

	mu     sync.RWMutex // protects the field below
	models map[target]*counts
}

// A target is a version of a model that exists, or with NoVersion the model.
type target struct {
	model   string
	version int64
}

type counts [ProtocolCount][ReasonCount]atomic.Uint64

// New returns a counter. Only models that lookup knows get counts of their own,
// so that clients cannot make series by inventing names.
func New(lookup Lookup, log *slog.Logger) *Counter {
	c := &Counter{lookup: lookup, log: log, models: make(map[target]*counts)}
	for i := range c.requestLines {
		c.requestLines[i].say = func(n int) {
			log.Debug("requests rejected, not logged one by one", "reason", Reason(i), "count", n)
		}
	}
	for i := range c.closeLines {
		c.closeLines[i].say = func(n int) {
			log.Debug("connections closed, not logged one by one", "reason", Close(i), "count", n)
		}
	}
	return c
}

// Request counts and logs a rejected request; one whose reason is None it
// ignores. It keeps nothing of r.
func (c *Counter) Request(r Request) {
	if c == nil || r.Reason == None {
		return
	}
	c.find(r.Model, r.Version)[r.Protocol][r.Reason].Add(1)
	if c.logs() && c.requestLines[r.Reason].allow() {
		c.log.Debug("request rejected", "protocol", r.Protocol, "client", address(r.Client),
			"model", clip(r.Model), "reason", r.Reason, "answer", clip(r.Text))
	}
}

// Closed counts and logs a connection that the server closed. Where the client
// would have sent a request and nobody else reports it, that is counted too.
func (c *Counter) Closed(p Protocol, why Close, client net.Addr, text string) {
	if c == nil {
		return
	}
	c.closed[p][why].Add(1)
	if r := closes[why].reason; r != None {
		c.server[p][r].Add(1)
	}
	if c.logs() && c.closeLines[why].allow() {
		c.log.Debug("connection closed", "protocol", p, "client", address(client), "reason", why, "detail", clip(text))
	}
}

// Requests returns how many requests for a version were rejected for a reason.
// The model is empty for those that asked for none that exists; the version is
// NoVersion for those that asked for none that is there.
func (c *Counter) Requests(model string, version int64, p Protocol, r Reason) uint64 {
	switch {
	case c == nil:
		return 0
	case model == "":
		return c.server[p][r].Load()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := c.models[target{model, version}]; n != nil {
		return n[p][r].Load()
	}
	return 0
}

// Unversioned returns the names of the models that exist and have rejected
// requests under NoVersion.
func (c *Counter) Unversioned() []string {
	if c == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var names []string
	for t := range c.models {
		if t.version != NoVersion {
			continue
		}
		if exists, _ := c.lookup(t.model, NoVersion); exists {
			names = append(names, t.model)
		}
	}
	return names
}

// Connections returns how many connections were closed for a reason.
func (c *Counter) Connections(p Protocol, why Close) uint64 {
	if c == nil {
		return 0
	}
	return c.closed[p][why].Load()
}

// Close logs how many lines were left out and not yet reported. What is counted
// afterwards is not logged any more.
func (c *Counter) Close() {
	if c == nil {
		return
	}
	for i := range c.requestLines {
		c.requestLines[i].close()
	}
	for i := range c.closeLines {
		c.closeLines[i].close()
	}
}

// logs reports whether the log takes our lines at all.
func (c *Counter) logs() bool { return c.log.Enabled(context.Background(), slog.LevelDebug) }

// find returns the counts of what a request asked for.
func (c *Counter) find(model string, version int64) *counts {
	if model == "" {
		return &c.server
	}
	exists, number := c.lookup(model, version)
	if !exists {
		return &c.server
	}
	t := target{model, number}
	c.mu.RLock()
	n := c.models[t]
	c.mu.RUnlock()
	if n != nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = c.models[t]; n == nil {
		n = new(counts)
		t.model = strings.Clone(model) // may lie in the memory of a request
		c.models[t] = n
	}
	return n
}
