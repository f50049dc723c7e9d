// Package respcache keeps models' responses to answer the same request again. One
// Cache serves all models of a server, bounded in bytes; what was used longest ago
// leaves first. It is safe for concurrent use.
package respcache

import (
	"container/list"
	"sync"

	"shoal/internal/infer"
)

// A Cache keeps responses by their keys. Of requests with one key that come at the
// same time, one is computed and the others wait for it.
type Cache struct {
	limit int64

	mu      sync.Mutex // protects the fields below
	bytes   int64
	entries map[Key]*list.Element // of *entry
	recent  list.List             // of *entry, the last used first
	flights map[Key]*flight       // those that are being computed
}

type entry struct {
	key  Key
	resp *infer.Response // never changed
	size int64
}

// A flight is a response that is being computed.
type flight struct{ done chan struct{} }

// New returns an empty cache for so many bytes.
func New(limit int64) *Cache {
	return &Cache{limit: limit, entries: make(map[Key]*list.Element), flights: make(map[Key]*flight)}
}

// Begin looks a response up. With a nil response and a nil channel the caller is to
// compute it and must call End. With a channel somebody else computes it: the caller
// waits until the channel is closed and begins again. The response must not be
// changed, nor released.
func (c *Cache) Begin(k Key) (*infer.Response, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[k]; at != nil {
		c.recent.MoveToFront(at)
		return at.Value.(*entry).resp, nil
	}
	if f := c.flights[k]; f != nil {
		return nil, f.done
	}
	c.flights[k] = &flight{done: make(chan struct{})}
	return nil, nil
}

// End ends what Begin asked the caller to compute. A copy of resp is kept; nil means
// that there is none, such as after an error.
func (c *Cache) End(k Key, resp *infer.Response) {
	var kept *entry
	if resp != nil {
		if size := sizeOf(resp); size <= c.limit {
			kept = &entry{k, clone(resp), size}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.flights[k].done)
	delete(c.flights, k)
	if kept == nil {
		return
	}
	c.entries[k] = c.recent.PushFront(kept)
	c.bytes += kept.size
	for c.bytes > c.limit {
		last := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, last.key)
		c.bytes -= last.size
	}
}

// Size returns how many responses there are and their bytes.
func (c *Cache) Size() (responses int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.bytes
}
