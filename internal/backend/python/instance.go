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

	handler atomic.Int64         // nanoseconds that the model's code has taken
	current atomic.Pointer[link] // the worker that was started last

	sequence uint64 // of the last batch that was sent; only the holder of the worker uses it

	mu   sync.Mutex // protects the fields below
	idle []*run
}

// A run is the state of one batch. An instance has one for the batch that its
// worker runs and one for the batch that is being copied into its memory.
type run struct {
	in       *instance
	requests []*infer.Request // the batch's; nil between runs
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
	l, s, size, err := r.acquire(b, rows)
	if err != nil {
		return errors.Is(err, errSilent), err
	}
	in.sequence++
	sequence := in.sequence
	binary.LittleEndian.PutUint64(s.in, sequence)
	if in.model.decoupled {
		l.streams.add(sequence, r.requests)
	} else {
		l.clients.begin(sequence, r.requests)
	}
	b.Times.InputsReady = in.now()
	err = l.exchange(s, size, sequence)
	l.clients.end()
	b.Times.OutputsOut = in.now()
	if err == nil {
		err = r.read(s, sequence, rows)
	}
	if err != nil {
		again = errors.Is(err, errSilent) && l.mem.untaken() && !in.model.decoupled
		return again, in.lost(l, s, err)
	}
	in.handler.Add(int64(r.reader.handler))
	in.sup.Release(l)
	r.hand(s)
	return false, nil
}

// acquire copies the batch into the worker's memory and returns once it has
// acquired the worker. If the worker was replaced meanwhile, it copies the
// batch again.
func (r *run) acquire(b *infer.Batch, rows int) (l *link, s *slot, size int, err error) {
	sup := r.in.sup
	first, err := sup.Await()
	if err != nil {
		return nil, nil, 0, err
	}
	s, size, laid := r.lay(first, rows)
	if b.Turn != nil {
		b.Turn.Await()
	}
	l, err = sup.Acquire()
	if err == nil && l == first && laid == nil {
		return l, s, size, nil
	}
	if laid == nil {
		first.mem.put(s)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	if s, size, err = r.lay(l, rows); err == nil {
		return l, s, size, nil
	}
	if errors.Is(err, errSilent) {
		_ = sup.Lost(l, err) // the worker has not seen the batch
		return nil, nil, 0, err
	}
	sup.Release(l)
	return nil, nil, 0, r.in.fault(err)
}

// lay copies the batch into a slot of the worker's memory.
func (r *run) lay(l *link, rows int) (*slot, int, error) {
	s, err := l.mem.take()
	if err != nil {
		return nil, 0, err
	}
	size, err := r.gather(s, rows)
	if err != nil {
		l.mem.put(s)
	}
	return s, size, err
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

// exchange lets the worker run the batch in the slot. While the worker's thread
// waits for a call to another model, this goroutine has nothing else to do, and
// runs it.
func (l *link) exchange(s *slot, size int, sequence uint64) error {
	if err := l.mem.send(s, size); err != nil {
		return err
	}
	for {
		if err := l.mem.wait(); err != nil {
			return err
		}
		if l.silent.Load() {
			if binary.LittleEndian.Uint64(s.out) != sequence {
				return errSilent // otherwise it answered and then ended
			}
			return nil
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
