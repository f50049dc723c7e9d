package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/reject"
	"shoal/internal/sched"
	"shoal/internal/status"
)

// A Version is a loaded version of a model: its instances and the scheduler in
// front of them.
type Version struct {
	id        string // of the model
	namespace string // of the model; empty when there are none
	number    int64
	config    *modelpb.ModelConfig
	sig       *model.Signature
	model     backend.Model
	ensemble  *model.Ensemble // the steps of a model that is made of others; nil for any other
	members   []member        // its instances
	sched     sched.Scheduler
	decoupled bool
	queueSize int64 // how many bytes of responses may wait for a slow client
	stats     *stats
	cached    *cached                                                     // nil when each request is computed
	arrived   func(sig *model.Signature, version int64, r *infer.Request) // nil: nobody asks

	loaded       time.Time
	loadDuration time.Duration

	calls  []string // the models that it sends requests to
	store  *store   // the folder of a client's files; nil when they are the repository's
	leases leases
	freed  chan struct{} // closed when the version is freed

	// When the instances of a version change, another Version replaces it that
	// shares its model, scheduler and counters: the leases on this one show
	// when the removed instances have no responses in use any more.
	before  *Version // the version that this one replaced; nil when it was loaded
	resized bool     // it was replaced after a resize
	leaving []member // the instances that it must then still free
}

// trouble returns why a loaded version cannot serve at the moment, nil when it can.
func (v *Version) trouble() error {
	if f, ok := v.model.(backend.Fallible); ok {
		return f.Trouble()
	}
	return nil
}

// trim makes the instances free memory that no batch uses.
func (v *Version) trim() {
	for _, m := range v.members {
		if t, ok := m.instance.(backend.Trimmer); ok {
			t.Trim()
		}
	}
}

// Name returns the model's name.
func (v *Version) Name() string { return v.sig.Name }

// Number returns the version's number.
func (v *Version) Number() int64 { return v.number }

// Signature returns what requests are checked against. It must not be changed.
func (v *Version) Signature() *model.Signature { return v.sig }

// Config returns the complete configuration. It must not be changed.
func (v *Version) Config() *modelpb.ModelConfig { return v.config }

// Decoupled reports whether the model may answer a request any number of times.
func (v *Version) Decoupled() bool { return v.decoupled }

// Rereads reports whether a request's inputs are read more than once, so that they
// must not change until it is answered: a client must not choose the key of a
// cached response by other data than those that were computed.
func (v *Version) Rereads() bool { return v.cached != nil || v.ensemble != nil }

// Infer checks r, runs it and fills in its Response, with outputs sorted by
// name. Whatever it returns, the caller must Release r, and only then may its
// lease on the version end.
//
// Use InferStream for a decoupled model.
func (v *Version) Infer(ctx context.Context, r *infer.Request) error {
	if v.decoupled {
		r.Outcome = infer.Refused
		return status.Rejectf(reject.Unsupported, status.Unsupported, "model '%s' is decoupled: it may answer a request any number of times; use a gRPC stream or generate_stream", v.sig.Name)
	}
	if err := v.accept(r); err != nil {
		return err
	}
	begin := time.Now()
	v.stats.accepted()
	r.Context = ctx
	if r.Trace != nil {
		v.traceAccepted(r, begin)
	}
	var err error
	if v.cached != nil {
		err = v.cached.do(ctx, v, r)
	} else {
		err = v.sched.Do(ctx, r)
	}
	if r.Trace != nil {
		traceResponse(r, &r.Response)
	}
	if err == nil {
		err = v.finish(r, &r.Response)
	}
	v.conclude(r, begin, err)
	return err
}

// conclude sets the outcome of a request that was accepted at begin, and counts
// it.
func (v *Version) conclude(r *infer.Request, begin time.Time, err error) {
	switch {
	case r.Outcome == infer.Refused: // by the scheduler
	case err != nil:
		r.Outcome = infer.Failed
	default:
		r.Outcome = infer.Answered
	}
	v.stats.concluded(r, begin, err)
	if r.Trace != nil {
		r.Trace.Done(r.Queued, err)
	}
}

// accept checks r and reports its arrival.
func (v *Version) accept(r *infer.Request) error {
	if err := check(v.sig, r); err != nil {
		if late, ok := err.(lateFault); ok {
			r.Outcome = infer.Failed
			v.stats.malformed()
			return late.error
		}
		r.Outcome = infer.Refused
		return status.Reject(reject.BadInput, err)
	}
	if v.arrived != nil {
		v.arrived(v.sig, v.number, r)
	}
	return nil
}

// finish converts a response to the form that the client asked for in r.
func (v *Version) finish(r *infer.Request, resp *infer.Response) error {
	resp.Model, resp.Version = v.sig.Name, v.number
	outs := resp.Outputs
	for i := range r.Outputs {
		w := &r.Outputs[i]
		for j := range outs {
			out := &outs[j]
			if out.Name != w.Name {
				continue
			}
			out.Binary = w.Binary
			if w.Classes > 0 && out.Type == v.sig.Outputs[out.Index].Type {
				if err := classify(v.sig, out, w.Classes); err != nil {
					return err
				}
			}
			if w.To != nil {
				if err := w.To.Write(out.Name, out.Data); err != nil {
					return err
				}
				out.Data, out.Placed = nil, true
			}
			break
		}
	}
	if !resp.Ordered {
		slices.SortFunc(outs, func(a, b infer.Output) int { return strings.Compare(a.Name, b.Name) })
	}
	return nil
}

// free closes the scheduler, the instances and the model, or only the removed
// instances when the version was resized. Nobody may have a lease.
func (v *Version) free() error {
	if v.resized {
		return closeMembers(v.leaving)
	}
	v.sched.Close()
	err := closeMembers(v.members)
	err = cmp.Or(err, v.model.Close())
	v.store.release()
	return err
}
