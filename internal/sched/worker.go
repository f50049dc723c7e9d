package sched

import (
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// A worker is an instance as the batcher sees it.
type worker struct {
	instance backend.Instance
	ticket   *Ticket // nil when nothing limits it
	pauser   pauser
	lane     *lane         // nil when the instance has one batch at a time
	lastRun  time.Duration // how long its last batch took

	// Under the batcher's mutex.
	away   bool // the instance cannot run now
	parked bool // it would be idle if it were not away
}

// leave ends a batch's time on the instance.
func (w *worker) leave(run *infer.Batch) {
	w.lastRun = run.Times.End.Sub(run.Times.Start)
	if w.lane != nil {
		w.lane.leave(run.Times.End)
	}
}

// employ adds a worker for an instance.
func (b *Batcher) employ(in backend.Instance, newPauser func() (pauser, error)) error {
	p, err := newPauser()
	if err != nil {
		return err
	}
	b.all = append(b.all, &worker{instance: in, ticket: ticketOf(in), pauser: p})
	return nil
}
