package sched

import "time"

// How long a held batch waits for requests that are about to arrive: at most a
// quarter of the last run, in steps of a sixty-fourth, of which four in a row
// may bring nothing. Measured with an MLP on two cores, where 64 clients need
// about a quarter of the run to send again: their mean batch was 54, and 40
// with half the time; and with ResNet-50 on a GPU, where 8 clients send 602 KB
// each: their mean batch was 8.0, and 6.9 if the first step without a request
// was the last. With several instances the first such step is the last: the
// expected requests may go to another instance, which would otherwise be idle.
// If a model runs for less time than polling the sockets a few times takes, the
// batch only yields to goroutines that are ready.
const (
	shortRun     = 50 * time.Microsecond
	gatherPart   = 4
	gatherSteps  = 64
	gatherMisses = 4
	minPause     = 20 * time.Microsecond
)

// longestAhead is the longest run during which the next batch is prepared. A
// batch that an instance has cannot be withdrawn, and for long runs the copies
// matter little.
const longestAhead = 50 * time.Millisecond

// start decides whether a held batch starts.
func (p *Triton) start(v *View) Decision {
	h := v.Held
	if h.Ahead { // only if it can neither grow nor be merged any more
		final := !h.Open && (p.Delay == 0 || h.Sealed || h.Rows >= p.MaxRows)
		return Decision{Start: final && h.LastRun > 0 && h.LastRun <= longestAhead}
	}
	// A batch of the right size accepts no more: other requests wait in the
	// queue, under their queue policies.
	closes := v.KeepQueued && p.prefers(h.Rows)
	d := Decision{Start: true}
	if !p.NoGather {
		d = p.gather(v)
	}
	d.Close = closes
	if p.Delay == 0 && d.Wait == Yield {
		d.Start = true // there would be nothing else to decide after it
	}
	if !d.Start || p.Delay == 0 || p.MaxRows == 1 || h.Sealed || v.Formed == 0 {
		return d
	}
	if v.Behind == nil {
		return Decision{Look: true, Close: closes}
	}
	return Decision{Start: true, Close: closes, Take: p.merge(v)}
}

// gather lets goroutines that are about to bring requests run before the batch
// starts: a batch that starts at once is small. It expects as many requests as
// have recently been in flight at once, so a single caller never waits. It goes
// on for as long as more arrive, but no longer than a small part of the last
// run.
func (p *Triton) gather(v *View) Decision {
	h := v.Held
	patience := 1
	if v.Instances == 1 {
		patience = gatherMisses
	}
	step := max(minPause, h.LastRun/gatherSteps)
	switch {
	case !h.Open, h.Rows >= p.largest(), h.Requests >= v.Peak, h.LastRun < shortRun && h.Looks > 0:
		return Decision{Start: true}
	case h.LastRun < shortRun:
		return Decision{Wait: Yield}
	case h.Looks == 0:
		return Decision{} // poll the sockets once
	case h.Idle >= patience, v.Now.Sub(h.Since)+step > h.LastRun/gatherPart:
		return Decision{Start: true}
	}
	return Decision{Wait: step}
}

// merge returns how many of the batches behind the held one have waited out the
// delay and fit into it.
func (p *Triton) merge(v *View) int {
	rows := v.Held.Rows
	for i := range v.Behind {
		next := &v.Behind[i]
		rows += next.Rows
		if next.Differs || rows > p.MaxRows || v.Now.Sub(next.Queued) < p.Delay {
			return i
		}
	}
	return len(v.Behind)
}
