package sched

// A ceiling tells callers that wait for their answers from requests that come at random:
// there are only so many of them, so that again and again nearly all have a request in
// flight. The most requests of a stream that were in flight at a time are seldom reached.
type ceiling struct {
	now, before int     // the most requests in flight at the ends of batches, of a span and the one before
	batches     int     // of the span
	near        int     // of those, how many ended with about the most
	share       float64 // of all batches, older ones counted less
}

const (
	// A span has so many batches.
	ceilingBatches = 32
	// aboutMost is which part of the most are about the most.
	aboutMost = 0.95
	// oftenMost is the share of batches that end with about the most if callers wait.
	// Most streams that were simulated come to at most 0.06, a few to 0.15 at times.
	oftenMost = 0.15
)

// see notes how many requests were in flight when a batch ended.
func (c *ceiling) see(n int) {
	if float64(n)*aboutMost > float64(c.before) { // there are more than there seemed to be
		c.near = 0
	}
	c.now = max(c.now, n)
	if float64(n) >= aboutMost*float64(c.highest()) {
		c.near++
	}
	if c.batches++; c.batches == ceilingBatches {
		c.share += (float64(c.near)/ceilingBatches - c.share) / 3
		c.now, c.before, c.batches, c.near = 0, c.now, 0, 0
	}
}

// reached reports whether the most is reached again and again.
func (c *ceiling) reached() bool { return c.share > oftenMost }

// highest returns the most of late.
func (c *ceiling) highest() int { return max(c.now, c.before) }
