package python

import (
	"encoding/binary"
	"errors"
	"time"

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

	sequence uint64
	live     []*infer.Request // those of the batch at hand that are to run; stale between runs
	layout   layout
	reader   reader
	scratch  []byte
}

// Run implements backend.Instance.
func (in *instance) Run(b *infer.Batch) error {
	rows := in.admit(b.Requests)
	if len(in.live) == 0 {
		return nil // each request has its error
	}
	if limit := in.model.sig.MaxBatch; limit > 0 && rows > limit {
		return status.Errorf(status.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.sig.Name, limit)
	}
	for try := 1; ; try++ {
		again, err := in.try(b, rows)
		if !again || try == maxTries {
			return err
		}
	}
}

// maxTries is how often a batch is given to a worker that turns out to be dead
// already.
const maxTries = 3

// try runs the batch in the worker that is there. It is to be tried again when
// the worker had ended before it saw the batch.
func (in *instance) try(b *infer.Batch, rows int) (again bool, err error) {
	l, err := in.sup.Acquire()
	if err != nil {
		return false, err
	}
	s, err := l.mem.take()
	if err != nil {
		in.sup.Release(l)
		return false, in.fault(err)
	}
	size, err := in.gather(s, in.live, rows)
	if err != nil {
		l.mem.put(s)
		in.sup.Release(l)
		return false, in.fault(err)
	}
	if in.model.decoupled {
		l.streams.add(in.sequence, in.live)
	}
	b.Times.InputsReady = in.now()
	err = in.exchange(l, s, size)
	b.Times.OutputsOut = in.now()
	if err == nil {
		err = in.read(s, rows)
	}
	if err != nil {
		again = errors.Is(err, errSilent) && l.mem.untaken() && !in.model.decoupled
		return again, in.lost(l, s, err)
	}
	l.handler.Add(int64(in.reader.handler))
	in.sup.Release(l)
	in.hand(s)
	return false, nil
}

// read reads the worker's answer. That of a decoupled model has nothing in it: its
// responses come by themselves.
func (in *instance) read(s *slot, rows int) error {
	if in.model.decoupled {
		_, err := in.reader.open(s, in.sequence)
		return err
	}
	return in.reader.read(s, in.sequence, in.live, rows)
}

// now returns the time, from one reading of the clock: time.Now makes two.
func (in *instance) now() time.Time { return in.born.Add(time.Since(in.born)) }

// exchange has the worker run the batch in the slot.
func (in *instance) exchange(l *link, s *slot, size int) error {
	if err := l.mem.send(s, size); err != nil {
		return err
	}
	if err := l.mem.wait(); err != nil {
		return err
	}
	if l.silent.Load() && binary.LittleEndian.Uint64(s.out) != in.sequence {
		return errSilent // else it answered and ended after that
	}
	return nil
}

var errSilent = errors.New("the worker closed its connection to the server")

// lost ends a worker that did not answer, or not in a way that can be read.
func (in *instance) lost(l *link, s *slot, fault error) error {
	err := in.sup.Lost(l, fault)
	l.mem.drop(s)
	if in.model.decoupled {
		return nil // each stream was told when the worker was buried
	}
	return err
}

// hand makes the slot the owner of the responses' memory.
func (in *instance) hand(s *slot) {
	owned := int32(0)
	for _, r := range in.live {
		if r.Err == nil && !in.model.decoupled {
			owned++
		}
	}
	if in.reader.kept {
		s.kept = true
	}
	if owned == 0 {
		s.back()
		return
	}
	s.refs.Store(owned)
	for _, r := range in.live {
		if r.Err == nil && !in.model.decoupled {
			r.Response.Own(s)
		}
	}
}

// fault gives an error of ours its code and the model's name.
func (in *instance) fault(err error) error {
	var se *status.Error
	if errors.As(err, &se) {
		return err
	}
	return status.Wrap(status.Internal, err, "model '"+in.model.sig.Name+"' could not be run; the server's log has the details")
}

// Watch has changed called when the instance's worker is not there to run batches,
// and when it is again.
func (in *instance) Watch(changed func(available bool)) { in.seat.Watch(changed) }

// Close implements backend.Instance.
func (in *instance) Close() error {
	in.seat.Leave()
	return in.sup.Close()
}
