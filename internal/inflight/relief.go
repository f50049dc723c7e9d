package inflight

import (
	"cmp"
	"slices"
	"time"
)

// A Holder is a connection as the budget sees it. When memory is short, those
// that hold much of it and are slow are ended.
type Holder interface {
	// Waiting returns how many bytes are held while the client is waited for:
	// a request that has not arrived as a whole, or an answer that it has not
	// taken. It also returns how many bytes the client has sent and taken in
	// all. It may be called from any goroutine.
	Waiting() (bytes, moved int64)
	// Evict ends the connection. It must not block.
	Evict()
}

const (
	// reliefTick is how often holders are looked at while claims wait.
	reliefTick = 100 * time.Millisecond
	// A holder is slow when what it holds would take longer than slowTurnover
	// at the rate at which it sends and takes. Those that hold less than
	// leastEvicted are left alone.
	slowTurnover = 4 * time.Second
	leastEvicted = 16 << 10
	// slowFor is how long a holder is watched before it is called slow: on a
	// busy machine good clients pause, too.
	slowFor = 500 * time.Millisecond
	// A holder is proven that has moved so many times what it holds. It is
	// watched for three times as long: attackers seldom do business first.
	provenTimes = 8
	// mostEvicted is how many are ended in one tick.
	mostEvicted = 32
)

// A pace is what was last seen of a holder.
type pace struct {
	moved int64
	at    time.Time
	slow  bool // over the time that ended then
}

// Register has h ended when memory is short and it is slow, until Unregister.
func (b *Budget) Register(h Holder) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[h] = pace{}
}

// Unregister ends what Register began.
func (b *Budget) Unregister(h Holder) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holders, h)
}

// relieveLocked looks at the holders until the budget has room again. It begins
// before claims have to wait, so that the pace of the holders is then known, and
// ends slow ones only while claims wait or are refused.
func (b *Budget) relieveLocked() {
	if b.relieving.Load() || len(b.holders) == 0 {
		return
	}
	b.relieving.Store(true)
	b.relief.Go(func() {
		ticker := time.NewTicker(reliefTick)
		defer ticker.Stop()
		for first := true; ; first = false {
			for _, h := range b.slow(time.Now(), first) {
				h.Evict()
			}
			<-ticker.C
			b.mu.Lock()
			if !b.waiting() && b.wanted == 0 && b.used.Load() <= b.watchFrom() {
				b.relieving.Store(false)
				b.mu.Unlock()
				return
			}
			b.mu.Unlock()
		}
	})
}

// watchFrom is the use from which holders are watched.
func (b *Budget) watchFrom() int64 { return b.limit / 2 }

// A slowHolder is one that may be ended.
type slowHolder struct {
	holder Holder
	bytes  int64
}

// slow returns the holders to be ended so that the claims that wait fit: the
// largest of those that are slow. With first nobody's pace is known yet.
func (b *Budget) slow(now time.Time, first bool) []Holder {
	b.mu.Lock()
	holders := make([]Holder, 0, len(b.holders))
	paces := make([]pace, 0, len(b.holders))
	for h, p := range b.holders {
		holders, paces = append(holders, h), append(paces, p)
	}
	need := b.wanted
	for _, w := range b.queue {
		need += w.n
	}
	if need > 0 { // answers are counted whether they fit or not
		need += max(0, b.used.Load()-b.ceiling(need))
	}
	if !first {
		b.wanted = 0
	}
	b.mu.Unlock()
	var found []slowHolder
	seen := make([]pace, len(holders))
	for i, h := range holders { // without the mutex: a holder may be busy
		bytes, moved := h.Waiting()
		elapsed := now.Sub(paces[i].at)
		seen[i] = paces[i]
		if first || paces[i].at.IsZero() || bytes < leastEvicted {
			seen[i] = pace{moved: moved, at: now}
			continue
		}
		watchFor := slowFor
		if moved >= provenTimes*bytes {
			watchFor *= patient
		}
		slow := isSlow(bytes, moved-paces[i].moved, elapsed)
		if elapsed >= watchFor {
			seen[i] = pace{moved, now, slow}
		}
		if slow && (elapsed >= watchFor || paces[i].slow) {
			found = append(found, slowHolder{h, bytes})
		}
	}
	b.mu.Lock()
	for i, h := range holders {
		if _, ok := b.holders[h]; ok {
			b.holders[h] = seen[i]
		}
	}
	b.mu.Unlock()
	return largest(found, need)
}

// isSlow reports whether bytes would take too long at the rate of moved bytes in
// so much time.
func isSlow(bytes, moved int64, elapsed time.Duration) bool {
	return float64(moved)*float64(slowTurnover) < float64(bytes)*float64(elapsed)
}

// largest returns as many of the largest as hold the bytes that are needed.
func largest(found []slowHolder, need int64) []Holder {
	slices.SortFunc(found, func(a, b slowHolder) int { return cmp.Compare(b.bytes, a.bytes) })
	var list []Holder
	for _, s := range found {
		if need <= 0 || len(list) == mostEvicted {
			break
		}
		need -= s.bytes
		list = append(list, s.holder)
	}
	return list
}
