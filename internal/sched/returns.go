package sched

import (
	"math"
	"time"

	"shoal/internal/infer"
)

// returns estimates how long callers take to send again after an answer. It
// does not distinguish callers: each request counts as the return of the newest
// answer before it that has none, if that is not too old.
type returns struct {
	answers [mostAnswers]answers // a ring of batches whose answers wait for a return
	first   int                  // the oldest
	n       int
	at      int       // where the last search began: at the newest that is older than that request, counted from the first
	epoch   time.Time // the end of the first batch
	all     times
	awaited times   // of those for whom an instance waited, in vain or not: they did not compete with it for a core
	back    float32 // share of the answers that are followed by a request
	last    time.Time
	age     int  // batches since the last for which an instance waited
	waited  bool // for the last: those who came while it ran were awaited in vain
}

// times are how often something took how long. The past fades: each batch counts
// for more than the last, which takes less time than to reduce all counts.
type times struct {
	counts [returnSizes]float32 // by size
	total  float32
	weight float32 // of what is added now
}

type answers struct {
	at   time.Duration // after the epoch
	left int
}

// mostAnswers is how many batches are remembered at most. With many callers and
// small batches a request is seen long after it came: when its own batch has run.
const mostAnswers = 256

// returnSizes is how many classes of times there are, four for each doubling from
// a microsecond on; returnMemory is what remains of a count with each batch, and
// mostWeight when weights begin anew.
const (
	returnSizes  = 96
	returnMemory = 0.98
	mostWeight   = 1e9
)

// observe learns from a batch's requests when they came and when they were
// answered. Its instance had it since then, and waited for more requests or did not.
// A request that comes more than horizon after an answer does not count as its
// return.
func (r *returns) observe(requests []*infer.Request, since, end time.Time, waited bool, horizon time.Duration) {
	r.all.fade()
	r.age++
	before := r.waited
	r.waited = waited
	if waited {
		r.awaited.fade()
		r.age = 0
	}
	if r.epoch.IsZero() {
		r.epoch = end
	}
	held, queued := since.Sub(r.epoch), time.Duration(0)
	for _, q := range requests {
		queued = q.Queued.Sub(r.epoch)
		took, ok := r.match(queued, horizon)
		if !ok {
			continue
		}
		r.all.add(took)
		if late := queued < held; late && before || !late && waited {
			r.awaited.add(took)
		}
	}
	for r.n > 0 && (r.n == len(r.answers) || queued-r.answer(0).at > horizon) { // requests of later batches are hardly older
		r.drop()
	}
	r.answers[(r.first+r.n)%len(r.answers)] = answers{end.Sub(r.epoch), len(requests)}
	r.n++
	r.last = end
}

// skip notes that a batch ended that is not learned from, nor are the returns after it.
func (r *returns) skip(end time.Time) {
	r.n, r.at, r.last = 0, 0, end
}

// match counts a request as the return of the newest answer before it that has
// none, and returns how long that took.
func (r *returns) match(queued, horizon time.Duration) (time.Duration, bool) {
	for r.at+1 < r.n && r.answer(r.at+1).at <= queued { // requests come in order, or nearly
		r.at++
	}
	for r.at > 0 && r.answer(r.at).at > queued {
		r.at--
	}
	for i := r.at; i >= 0 && i < r.n; i-- {
		a := r.answer(i)
		took := queued - a.at
		if took > horizon {
			return 0, false
		}
		if took < 0 || a.left == 0 {
			continue
		}
		a.left--
		r.back += (1 - r.back) / 64
		return took, true
	}
	return 0, false
}

// answer returns the i-th answers, counted from the oldest.
func (r *returns) answer(i int) *answers { return &r.answers[(r.first+i)%len(r.answers)] }

// waiting returns the times of callers for whom an instance waits.
func (r *returns) waiting() *times {
	if r.awaited.number() < 8 {
		return &r.all
	}
	return &r.awaited
}

// mostLost is how many answers of a batch count at most as not followed by a request:
// callers that all pause are still callers.
const mostLost = 8

// drop removes the oldest answers: those left had no return.
func (r *returns) drop() {
	for range min(mostLost, r.answers[r.first].left) {
		r.back -= r.back / 64
	}
	r.first = (r.first + 1) % len(r.answers)
	r.n--
	r.at = max(0, r.at-1)
}

// returnSize returns the class of a time. It reads the logarithm from the bits of
// the number: each request needs it, and math.Log2 was 40 % of the policy's CPU.
func returnSize(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	const mantissa = 52 // bits
	bits := math.Float64bits(float64(d) / 1e3)
	doublings := int(bits>>mantissa) - 1023
	class := 4*doublings + 1
	rest := math.Float64frombits(bits&(1<<mantissa-1) | 1023<<mantissa)                   // from 1 to 2
	for _, root := range [...]float64{1.189207115002721, math.Sqrt2, 1.681792830507429} { // 2 to the powers of 1/4, 1/2 and 3/4
		if rest >= root {
			class++
		}
	}
	return min(returnSizes-1, class)
}

func (t *times) fade() {
	t.weight /= returnMemory
	if 0 < t.weight && t.weight < mostWeight {
		return
	}
	for i := range t.counts {
		if t.counts[i] /= mostWeight; t.counts[i] < 1/mostWeight { // too small to matter, and slow to compute with
			t.counts[i] = 0
		}
	}
	t.total /= mostWeight
	t.weight = max(1, t.weight/mostWeight)
}

func (t *times) add(took time.Duration) {
	t.counts[returnSize(took)] += t.weight
	t.total += t.weight
}

// number returns how many were added, older ones counted less.
func (t *times) number() float32 { return t.total / max(1, t.weight) }

// within returns the time within which that share of them is.
func (t *times) within(share float32) time.Duration {
	sum := float32(0)
	for i, n := range t.counts {
		if sum += n; n > 0 && sum >= share*t.total {
			return time.Duration(1e3 * math.Exp2(float64(i)/4))
		}
	}
	return 0
}

// chance returns which share of those that took longer than from took less than to.
func (t *times) chance(from, to time.Duration) float64 {
	low, high := 0, returnSize(to)
	if from > time.Microsecond {
		low = returnSize(from) + 1
	}
	var within, all float32
	for i, n := range t.counts[low:] {
		if low+i < high {
			within += n
		}
		all += n
	}
	if all == 0 {
		return 0
	}
	return float64(within / all)
}
