package engine

import (
	"context"
	"sync/atomic"
	"time"

	"shoal/internal/histogram"
	"shoal/internal/infer"
	"shoal/internal/respcache"
)

// A cached is a version's use of the cache of responses.
type cached struct {
	cache *respcache.Cache
	load  uint64 // tells this load of the model from all others

	hits, misses, hitNs, missNs atomic.Uint64

	// The distributions of the times of hits and misses, nil unless asked for.
	hitTime, missTime *histogram.Histogram
}

// loads numbers the uses of caches.
var loads atomic.Uint64

// newCached returns the use of a cache; nil when there is none. With times it keeps the
// distributions of its times.
func newCached(c *respcache.Cache, l *layouts, times bool) *cached {
	if c == nil {
		return nil
	}
	use := &cached{cache: c, load: loads.Add(1)}
	if times {
		use.hitTime, use.missTime = histogram.New(l.queue), histogram.New(l.queue)
	}
	return use
}

// hit and miss count a request that took so long in the cache.
func (c *cached) hit(took time.Duration) {
	c.hits.Add(1)
	c.hitNs.Add(nanos(took))
	if c.hitTime != nil {
		c.hitTime.Add(seconds(took), 1)
	}
}

func (c *cached) miss(took time.Duration) {
	c.misses.Add(1)
	c.missNs.Add(nanos(took))
	if c.missTime != nil {
		c.missTime.Add(seconds(took), 1)
	}
}

// do answers r from the cache, or has run compute the response and keeps it. When the
// same request is being computed already, it waits for that one.
func (c *cached) do(ctx context.Context, v *Version, r *infer.Request) error {
	r.Queued = time.Now()
	key := respcache.KeyOf(c.load, r)
	for {
		found, wait := c.cache.Begin(key)
		switch {
		case found != nil:
			respcache.Fill(&r.Response, found)
			took := time.Since(r.Queued)
			c.cache.Took(took, 0)
			c.hit(took)
			v.stats.queue.dist.Add(0, 1) // as in Triton, it counts as queued for no time
			return nil
		case wait == nil:
			return c.compute(ctx, v, r, key)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return gone(ctx)
		}
	}
}

// compute runs r and keeps its response.
func (c *cached) compute(ctx context.Context, v *Version, r *infer.Request, key respcache.Key) error {
	looked := time.Since(r.Queued)
	kept := false
	defer func() {
		if !kept { // it failed, or panics
			c.cache.End(key, nil)
		}
	}()
	err := v.sched.Do(ctx, r)
	if err != nil {
		return err
	}
	begin := time.Now()
	kept = true
	c.cache.End(key, &r.Response)
	inserted := time.Since(begin)
	c.cache.Took(looked, inserted)
	c.miss(looked + inserted)
	return nil
}
