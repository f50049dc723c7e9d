package sched

import (
	"context"
	"slices"
	"sync"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// A Limiter restricts instances, of any model, so that the resources that they
// use together stay within limits. Triton calls it the rate limiter: an
// instance runs a batch only while it holds all its resources. The instance
// with the lowest product of executions and priority goes first, and none
// overtakes it.
type Limiter struct {
	limits Limits

	mu      sync.Mutex // protects the fields below
	total   map[Resource]int
	used    map[Resource]int
	tickets []*Ticket
	waiting []*Ticket
}

// A Resource is something that instances share: on one device, or everywhere.
type Resource struct {
	Name   string
	Device int // Everywhere for a global one
}

// Everywhere is the device of a global resource.
const Everywhere = -1

// Limits are the available amounts of resources. The zero value sets none.
type Limits struct {
	all map[string]int   // by name: global, or on every device
	on  map[Resource]int // on one device
}

// Set sets the amount of a global resource, or on every device.
func (l *Limits) Set(name string, n int) {
	if l.all == nil {
		l.all = make(map[string]int)
	}
	l.all[name] = n
}

// SetOn sets the amount of a resource on a device.
func (l *Limits) SetOn(name string, device, n int) {
	if l.on == nil {
		l.on = make(map[Resource]int)
	}
	l.on[Resource{name, device}] = n
}

func (l *Limits) of(r Resource) (n int, set bool) {
	if n, set = l.on[r]; set {
		return n, set
	}
	if n, set = l.all[r.Name]; set || r.Device == Everywhere {
		return n, set
	}
	for other := range l.on { // an amount on other devices is not on this one
		set = set || other.Name == r.Name
	}
	return 0, set
}

// A Ticket is an instance's right to ask for its resources. It belongs to one
// instance, which asks for one execution at a time.
//
// The instance's next execution asks before the last one gives the resources
// back: otherwise they would go to another instance, whichever should be first.
type Ticket struct {
	limiter  *Limiter
	needs    map[Resource]int
	priority uint64
	granted  chan struct{} // buffered 1

	// Under the limiter's mutex.
	runs  uint64
	holds bool // the resources, or they are in granted
	again bool // it asked for the next execution while it held them
}

// A Limited is an instance that runs only while it holds the resources of its
// ticket. The schedulers ask for them before a batch starts, so that the batch
// can grow meanwhile.
type Limited struct {
	backend.Instance
	Ticket *Ticket
}

// ticketOf returns the ticket of an instance, nil when it has none.
func ticketOf(in backend.Instance) *Ticket {
	if l, ok := in.(*Limited); ok {
		return l.Ticket
	}
	return nil
}

// NewLimiter returns a limiter. Of a resource without a limit there is as much
// as the neediest instance asks for.
func NewLimiter(limits Limits) *Limiter {
	return &Limiter{limits: limits, total: make(map[Resource]int), used: make(map[Resource]int)}
}

// startRuns is how many executions an instance's start counts as, as in Triton,
// which makes and warms it up: an instance with a large priority number does
// not run before its share is due.
const startRuns = 2

// Join returns a ticket for an instance of a group on a device. It fails when
// the instance could never run.
func (l *Limiter) Join(cfg *modelpb.ModelRateLimiter, device int) (*Ticket, error) {
	t := &Ticket{limiter: l, needs: make(map[Resource]int), priority: max(1, uint64(cfg.GetPriority())), granted: make(chan struct{}, 1), runs: startRuns}
	for _, r := range cfg.GetResources() {
		key := Resource{r.GetName(), device}
		if r.GetGlobal() {
			key.Device = Everywhere
		}
		t.needs[key] = int(r.GetCount())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, n := range t.needs {
		if err := l.checkLocked(t, r, n); err != nil {
			return nil, err
		}
	}
	l.tickets = append(l.tickets, t)
	l.recountLocked()
	return t, nil
}

// checkLocked returns why an instance with t cannot need n of a resource.
func (l *Limiter) checkLocked(t *Ticket, r Resource, n int) error {
	if limit, set := l.limits.of(r); set && limit < n {
		return status.Errorf(status.InvalidArgument, "Resource count for %q is limited to %d which will prevent scheduling of one or more model instances, the minimum required count is %d; raise it with --rate-limit-resource",
			r.Name, limit, n)
	}
	for _, o := range append(slices.Clone(l.tickets), t) {
		for other := range o.needs {
			if other.Name == r.Name && (other.Device == Everywhere) != (r.Device == Everywhere) {
				return status.Errorf(status.InvalidArgument, "Resource %q is present as both global and device-specific resource in the model configuration.", r.Name)
			}
		}
	}
	return nil
}

// recountLocked computes how much there is of each resource.
func (l *Limiter) recountLocked() {
	clear(l.total)
	for _, t := range l.tickets {
		for r, n := range t.needs {
			l.total[r] = max(l.total[r], n)
		}
	}
	for r := range l.total {
		if limit, set := l.limits.of(r); set {
			l.total[r] = limit
		}
	}
}

// Leave gives the ticket back. The instance must not be running.
func (t *Ticket) Leave() {
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets = slices.DeleteFunc(l.tickets, func(o *Ticket) bool { return o == t })
	l.recountLocked()
	l.grantLocked()
}

// Ask asks for the resources of the next execution. A nil ticket needs none. Await
// or Cancel must follow.
func (t *Ticket) Ask() {
	if t == nil {
		return
	}
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.holds {
		t.again = true // Release will ask
		return
	}
	l.waiting = append(l.waiting, t)
	l.grantLocked()
}

// Await returns when the instance holds what it asked for. When ctx ends first
// it returns ctx's error, and the request for resources is withdrawn.
func (t *Ticket) Await(ctx context.Context) error {
	if t == nil {
		return nil
	}
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
		t.Cancel()
		return ctx.Err()
	}
}

// Cancel withdraws a request for resources that was not awaited.
func (t *Ticket) Cancel() {
	if t == nil {
		return
	}
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.again {
		t.again = false // the execution before it still holds them
		return
	}
	select {
	case <-t.granted:
		t.freeLocked()
	default:
		l.waiting = slices.DeleteFunc(l.waiting, func(o *Ticket) bool { return o == t })
	}
	l.grantLocked()
}

// Release gives the resources back after an execution.
func (t *Ticket) Release() {
	if t == nil {
		return
	}
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	t.freeLocked()
	if t.again {
		t.again = false
		l.waiting = append(l.waiting, t)
	}
	l.grantLocked()
}

func (t *Ticket) freeLocked() {
	t.holds = false
	for r, n := range t.needs {
		t.limiter.used[r] -= n
	}
}

// score orders the instances that wait; the lowest goes first.
func (t *Ticket) score() uint64 {
	t.limiter.mu.Lock()
	defer t.limiter.mu.Unlock()
	return t.scoreLocked()
}

func (t *Ticket) scoreLocked() uint64 { return t.runs * t.priority }

// grantLocked serves waiting instances, in order, as far as resources go.
func (l *Limiter) grantLocked() {
	for len(l.waiting) > 0 {
		best := 0
		for i, t := range l.waiting {
			if t.scoreLocked() < l.waiting[best].scoreLocked() {
				best = i
			}
		}
		t := l.waiting[best]
		for r, n := range t.needs {
			if l.used[r]+n > l.total[r] {
				return // the others wait behind it
			}
		}
		for r, n := range t.needs {
			l.used[r] += n
		}
		t.runs++
		t.holds = true
		l.waiting = slices.Delete(l.waiting, best, best+1)
		t.granted <- struct{}{} // buffered: one execution at a time
	}
}
