package reject

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// NoVersion is the version of a request that reached no version.
const NoVersion = -1

// A Request is a request that was rejected.
type Request struct {
	Protocol Protocol
	Client   net.Addr
	Model    string // as the client wrote it; empty when it is not known yet
	Version  int64  // likewise; infer.LatestVersion when the client named none
	Reason   Reason
	Text     string // the error text that the client got
}

// A Lookup reports whether a model exists, and which version a request for
// version gets: NoVersion when there is none.
type Lookup func(model string, version int64) (exists bool, number int64)

// A Counter counts rejected requests and closed connections, and logs them at
// level Debug, a few lines per second and reason. All methods may be called
// from any goroutine, and on a nil Counter, which does nothing.
type Counter struct {
	lookup Lookup
	log    *slog.Logger

	closed [ProtocolCount][CloseCount]atomic.Uint64
	server counts // requests for models that do not exist

	requestLines [ReasonCount]limiter
	closeLines   [CloseCount]limiter

	mu     sync.RWMutex // protects the field below
	models map[target]*counts
}

// A target is a version of an existing model, or with NoVersion the model.
type target struct {
	model   string
	version int64
}

type counts [ProtocolCount][ReasonCount]atomic.Uint64

// New returns a counter. Only models that lookup knows get their own counts, so
// that clients cannot create series by inventing names.
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

// Request counts and logs a rejected request, unless its reason is None. It
// keeps nothing of r.
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

// Closed counts and logs a connection that the server closed. If the client
// would have sent a request that nobody else reports, that is counted too.
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

// Requests returns how many requests for a version were rejected, by reason.
// The model is empty for requests to models that do not exist; the version is
// NoVersion for requests to versions that do not exist.
func (c *Counter) Requests(model string, version int64) (counts [ProtocolCount][ReasonCount]uint64) {
	if c == nil {
		return counts
	}
	from := &c.server
	if model != "" {
		c.mu.RLock()
		defer c.mu.RUnlock()
		if from = c.models[target{model, version}]; from == nil {
			return counts
		}
	}
	for p := range counts {
		for r := range counts[p] {
			counts[p][r] = from[p][r].Load()
		}
	}
	return counts
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

// Close logs how many lines were left out and not yet reported. Later
// rejections are not logged.
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

// logs reports whether the log level shows our lines.
func (c *Counter) logs() bool { return c.log.Enabled(context.Background(), slog.LevelDebug) }

// find returns the counts for a request's model and version.
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
		t.model = strings.Clone(model) // may alias a request's memory
		c.models[t] = n
	}
	return n
}
