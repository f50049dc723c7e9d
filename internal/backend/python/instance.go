package python

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/worker"
)

// An instance runs batches in one worker, one at a time.
type instance struct {
	model *loaded
	name  string
	sup   *worker.Supervisor[*link]
	seat  *worker.Member // its place among the model's workers
	born  time.Time
	gpu   *backend.GPUUse // nil on the CPU

	handler atomic.Int64         // nanoseconds that the model's code has taken
	current atomic.Pointer[link] // the worker that was started last

	mu       sync.Mutex // protects the fields below
	idle     []*run
	sequence uint64 // of the last batch that was sent
	busy     *link  // the worker that has batches, and how many
	sent     int
	next     *run // the batch that may be sent as soon as the one before it is
}

// A run is the state of one batch. An instance has one for the batch that its
// worker runs and one for the batch that is being copied into its memory.
type run struct {
	in       *instance
	requests []*infer.Request // the batch's; nil between runs
	link     *link            // the worker whose memory has the batch
	slot     *slot
	size     int    // bytes of the batch
	sequence uint64 // the batch's number; 0 until it is sent
	place    uint64 // how many batches the worker got up to this one
	layout   layout
	copies   infer.Copies
	reader   reader
}

// Ahead implements backend.Ahead: while one batch runs, another may be
// gathered.
func (in *instance) Ahead() int {
	queue := in.model.cfg.GetDynamicBatching().GetDefaultQueuePolicy().GetMaxQueueSize()
	if isArchive(in.model.cfg) && queue < largeQueue {
		return 0
	}
	return 1
}

// largeQueue is the job_queue_size of an archive's model from which one batch more
// is taken than the original server would: clients can count on the limit of a
// small queue.
const largeQueue = 1000

// Trim implements backend.Trimmer.
func (in *instance) Trim() {
	if l := in.current.Load(); l != nil {
		l.mem.trim()
	}
}

// Run implements backend.Instance.
func (in *instance) Run(b *infer.Batch) error {
	r := in.takeRun()
	defer in.putRun(r)
	r.requests = b.Requests
	rows := b.Rows
	if limit := in.model.sig.MaxBatch; limit > 0 && rows > limit {
		return status.Errorf(status.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.sig.Name, limit)
	}
	for try := 1; ; try++ {
		again, err := r.try(b, rows)
		if err == nil {
			return nil
		}
		if !again || try == maxTries {
			return in.fault(err)
		}
	}
}

// maxTries is how often a batch is given to a worker that turns out to be dead.
const maxTries = 3

func (in *instance) takeRun() *run {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.idle); n > 0 {
		r := in.idle[n-1]
		in.idle = in.idle[:n-1]
		return r
	}
	return &run{in: in, reader: reader{model: in.model, limit: in.model.set.maxResult}}
}

func (in *instance) putRun(r *run) {
	r.requests = nil
	in.mu.Lock()
	defer in.mu.Unlock()
	in.idle = append(in.idle, r)
}

// try runs the batch in the current worker. It returns again when the worker
// ended before it saw the batch.
func (r *run) try(b *infer.Batch, rows int) (again bool, err error) {
	in := r.in
	if err := r.acquire(b, rows); err != nil {
		return errors.Is(err, errSilent), err
	}
	l, s := r.link, r.slot
	b.Times.InputsReady = in.now()
	err = in.send(r)
	if err == nil {
		err = l.exchange(s, r.sequence)
	}
	in.ended(r)
	b.Times.OutputsOut = in.now()
	if err == nil {
		err = r.read(s, r.sequence, rows)
	}
	if err != nil {
		again = errors.Is(err, errSilent) && l.mem.taken() < r.place && !in.model.decoupled
		return again, in.lost(l, s, err)
	}
	in.handler.Add(int64(r.reader.handler))
	in.sup.Release(l)
	r.hand(s)
	return false, nil
}

// acquire copies the batch into the worker's memory and returns once it has
// acquired the worker, which may have the batch by then. If the worker was
// replaced meanwhile, it copies the batch again.
func (r *run) acquire(b *infer.Batch, rows int) error {
	in, sup := r.in, r.in.sup
	r.sequence = 0
	first, err := sup.Await()
	if err != nil {
		return err
	}
	laid := r.lay(first, rows)
	if b.Turn != nil {
		if laid == nil && !b.Turn.Come() {
			in.offer(r)
		}
		b.Turn.Await()
		if in.claim(r) {
			sup.Reacquire(first) // if it is gone, the exchange tells
			return nil
		}
	}
	l, err := sup.Acquire()
	if err == nil && l == first && laid == nil {
		return nil
	}
	if laid == nil {
		first.mem.put(r.slot)
	}
	if err != nil {
		return err
	}
	if err = r.lay(l, rows); err == nil {
		return nil
	}
	if errors.Is(err, errSilent) {
		_ = sup.Lost(l, err) // the worker has not seen the batch
		return err
	}
	sup.Release(l)
	return in.fault(err)
}

// lay copies the batch into a slot of the worker's memory.
func (r *run) lay(l *link, rows int) error {
	s, err := l.mem.take()
	if err != nil {
		return err
	}
	r.link, r.slot = l, s
	if r.size, err = r.gather(s, rows); err != nil {
		l.mem.put(s)
	}
	return err
}

// offer lets the worker have a batch while it still runs the one before, so that
// it goes from one to the other without a pause. Batches are sent in the order
// of their turns: if the one before is not sent yet, whoever sends it sends this
// one, too.
//
// It is for workers that wait for a GPU: others share the cores with the server,
// and would run while the answer to the last batch waits for a core. A
// decoupled model gets no batch ahead: its responses would count against a
// client that still waits.
func (in *instance) offer(r *run) {
	if in.model.decoupled || !r.link.mem.pinned {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sent > 0 && in.busy == r.link {
		_ = in.sendLocked(r) // if it fails, it is tried again on its turn
		return
	}
	in.next = r
}

// claim reports whether a batch was sent ahead. If not, nobody else sends it
// from now on.
func (in *instance) claim(r *run) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.next == r {
		in.next = nil
	}
	return r.sequence != 0
}

// send sends a batch, unless that was done, and the one that waits for it.
func (in *instance) send(r *run) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.sequence == 0 {
		if err := in.sendLocked(r); err != nil {
			return err
		}
	}
	if next := in.next; next != nil && next.link == r.link {
		in.next = nil
		_ = in.sendLocked(next)
	}
	return nil
}

func (in *instance) sendLocked(r *run) error {
	in.sequence++
	binary.LittleEndian.PutUint64(r.slot.in, in.sequence)
	if in.model.decoupled {
		r.link.streams.add(in.sequence, r.requests)
	} else {
		r.link.clients.begin(in.sequence, r.requests)
	}
	var err error
	if r.place, err = r.link.mem.send(r.slot, r.size); err != nil {
		r.link.clients.end(in.sequence)
		return err
	}
	r.sequence = in.sequence
	in.busy = r.link
	in.sent++
	return nil
}

// ended records that the worker has answered a batch, or will not.
func (in *instance) ended(r *run) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.sequence != 0 {
		in.sent--
		r.link.clients.end(r.sequence)
	}
}

// read reads the worker's answer. The answer of a decoupled model is empty: its
// responses are sent separately.
func (r *run) read(s *slot, sequence uint64, rows int) error {
	if r.in.model.decoupled {
		_, err := r.reader.open(s, sequence)
		return err
	}
	return r.reader.read(s, sequence, r.requests, rows)
}

// now returns the time with one reading of the clock: time.Now makes two.
func (in *instance) now() time.Time { return in.born.Add(time.Since(in.born)) }

// exchange waits for the answer to a batch that was sent. While the worker's
// thread waits for a call to another model, this goroutine has nothing else to
// do, and runs it.
func (l *link) exchange(s *slot, sequence uint64) error {
	for {
		if err := l.mem.wait(); err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(s.out) == sequence {
			return nil // the worker may run the next batch by now
		}
		if l.silent.Load() {
			return errSilent
		}
		number, at, n, ok := l.mem.pendingCall()
		if !ok {
			return nil
		}
		if err := l.calls.inline(number, at, n); err != nil {
			l.process.Kill(err) // and its end ends the next wait
		}
	}
}

var errSilent = errors.New("the worker closed its connection to the server")

// lost ends a worker that did not answer, or whose answer cannot be read.
func (in *instance) lost(l *link, s *slot, fault error) error {
	err := in.sup.Lost(l, fault)
	l.mem.drop(s)
	if in.model.decoupled {
		return nil // each stream got the error when the worker was reaped
	}
	return err
}

// hand makes the slot the owner of the responses' memory.
func (r *run) hand(s *slot) {
	owned := int32(0)
	for _, q := range r.requests {
		if q.Err == nil && !r.in.model.decoupled {
			owned++
		}
	}
	if r.reader.kept {
		s.kept = true
	}
	if owned == 0 {
		s.back()
		return
	}
	s.refs.Store(owned)
	for _, q := range r.requests {
		if q.Err == nil && !r.in.model.decoupled {
			q.Response.Own(s)
		}
	}
}

// fault gives an error its code and the model's name.
func (in *instance) fault(err error) error {
	var se *status.Error
	if errors.As(err, &se) {
		return err
	}
	return status.Wrap(status.Internal, err, "model '"+in.model.sig.Name+"' could not be run; the server's log has the details")
}

// Worker implements backend.Supervised.
func (in *instance) Worker() backend.Worker {
	w := backend.Worker{Name: in.name, Restarts: in.sup.Status().Restarts, Handler: time.Duration(in.handler.Load())}
	if l := in.current.Load(); l != nil {
		w.Resident, w.PID = l.process.RSS(), l.process.PID()
	}
	return w
}

// GPU implements backend.OnGPU. What the worker has reserved there is not known.
func (in *instance) GPU() (backend.GPUUse, bool) {
	if in.gpu == nil {
		return backend.GPUUse{}, false
	}
	return *in.gpu, true
}

// Watch calls changed when the instance's worker cannot run batches, and when
// it can again.
func (in *instance) Watch(changed func(available bool)) { in.seat.Watch(changed) }

// Abort implements backend.Abortable.
func (in *instance) Abort(why error) { in.sup.Abort(why) }

// Close implements backend.Instance.
func (in *instance) Close() error {
	in.seat.Leave()
	return in.sup.Close()
}
