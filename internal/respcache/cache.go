// Package respcache keeps models' responses to answer the same request again. One
// Cache serves all models of a server, bounded in bytes; what was used longest ago
// leaves first. It is safe for concurrent use.
package respcache

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/infer"
)

// A Cache keeps responses by their keys. Of requests with one key that come at the
// same time, one is computed and the others wait for it.
type Cache struct {
	limit int64

	looking, inserting atomic.Int64 // nanoseconds, by Took

	mu                      sync.Mutex // protects the fields below
	bytes                   int64
	entries                 map[Key]*list.Element // of *entry
	recent                  list.List             // of *entry, the last used first
	flights                 map[Key]*flight       // those that are being computed
	hits, misses, evictions uint64
}

// Stats are what a cache holds and what it did.
type Stats struct {
	Responses               int
	Bytes, Limit            int64
	Hits, Misses, Evictions uint64
	Lookup, Insertion       time.Duration // in sum
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
		c.hits++
		return at.Value.(*entry).resp, nil
	}
	if f := c.flights[k]; f != nil {
		return nil, f.done
	}
	c.flights[k] = &flight{done: make(chan struct{})}
	c.misses++
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
		c.evictions++
	}
}

// Took counts the time of a lookup and of the insertion after it, if there was one.
func (c *Cache) Took(lookup, insertion time.Duration) {
	c.looking.Add(int64(lookup))
	c.inserting.Add(int64(insertion))
}

// Stats returns what the cache holds and what it did.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Responses: len(c.entries), Bytes: c.bytes, Limit: c.limit,
		Hits: c.hits, Misses: c.misses, Evictions: c.evictions,
		Lookup: time.Duration(c.looking.Load()), Insertion: time.Duration(c.inserting.Load()),
	}
}
