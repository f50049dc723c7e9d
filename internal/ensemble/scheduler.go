// Package ensemble runs models that are made of other models. A Scheduler takes
// the place that batching has for other models: it sends each request's tensors
// through the steps, as requests to their models, which join the batches there.
//
// A step runs on the goroutine of the request, or on one of its own when others
// can run at the same time. While it waits it holds nothing that another request
// needs, so that any number of ensembles can share models with one instance.
// Tensors stay in the memory of the model that made them until the last step
// that reads them has its answer.
package ensemble

import (
	"context"
	"slices"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/sched"
	"shoal/internal/status"
)

// A Scheduler runs the requests of one ensemble. It implements sched.Scheduler;
// its methods may be called from many goroutines.
type Scheduler struct {
	graph  *model.Ensemble
	sig    *model.Signature
	host   backend.Host
	record sched.Recorder
	prefix string          // of the steps' errors
	whole  *plan           // for requests that want all outputs
	levels []int           // of each step: that of its inputs
	limits []chan struct{} // of each step: has room for the requests in flight; nil without a bound
	runs   sync.Pool
}

// New returns a scheduler for an ensemble with that signature.
func New(graph *model.Ensemble, sig *model.Signature, host backend.Host, record sched.Recorder) *Scheduler {
	s := &Scheduler{graph: graph, sig: sig, host: host, record: record, prefix: "in ensemble '" + graph.Name + "', "}
	s.whole = s.plan(func(string) bool { return true })
	for i := range graph.Steps {
		s.levels = append(s.levels, graph.Level[graph.Steps[i].Inputs[0].Tensor])
		var limit chan struct{}
		if graph.MaxInFlight > 0 {
			limit = make(chan struct{}, graph.MaxInFlight)
		}
		s.limits = append(s.limits, limit)
	}
	s.runs.New = func() any { return s.newRun() }
	return s
}

// A plan says what a request needs, by the outputs that it wants.
type plan struct {
	steps  []bool // whether the step is needed
	refs   []int  // how often each tensor is used
	wanted []int  // indexes of the ensemble's outputs
}

// plan returns the plan for requests that want some outputs.
func (s *Scheduler) plan(wants func(output string) bool) *plan {
	g := s.graph
	p := &plan{steps: make([]bool, len(g.Steps)), refs: make([]int, len(g.Tensors))}
	for i, out := range g.Outputs {
		if wants(out.Name) {
			p.wanted = append(p.wanted, i)
			p.refs[out.Tensor]++
		}
	}
	for i := range slices.Backward(g.Steps) { // those that read come first
		step := &g.Steps[i]
		if !slices.ContainsFunc(step.Outputs, func(out model.Link) bool { return p.refs[out.Tensor] > 0 }) {
			continue
		}
		p.steps[i] = true
		for _, in := range step.Inputs {
			p.refs[in.Tensor]++
		}
	}
	return p
}

// planFor returns the plan for a request.
func (s *Scheduler) planFor(r *infer.Request) *plan {
	if len(r.Outputs) == 0 || len(r.Outputs) == len(s.graph.Outputs) {
		return s.whole
	}
	return s.plan(func(output string) bool {
		return slices.ContainsFunc(r.Outputs, func(w infer.Wanted) bool { return w.Name == output })
	})
}

// Do implements sched.Scheduler. A decoupled ensemble sends its responses into
// the request's Stream and finishes it, unless Do fails.
func (s *Scheduler) Do(ctx context.Context, r *infer.Request) error {
	x := s.runs.Get().(*run)
	r.Queued = time.Now()
	r.Started = true
	x.ctx, x.r, x.plan = ctx, r, s.planFor(r)
	x.batch.Requests = append(x.batch.Requests[:0], r)
	x.batch.Rows = max(r.Rows, 1)
	begin := time.Now()
	x.batch.Times = infer.Times{Start: begin}
	s.record.Started(&x.batch)
	err := x.do()
	x.batch.Times = x.spent.Times(begin)
	s.record.Executed(&x.batch, err)
	if r.Spent != nil && err == nil {
		r.Spent.Add(x.spent.Queue(), &infer.Times{}) // the rest was in the batch's times
	}
	if err != nil || r.Stream != nil {
		x.put()
	}
	return err
}

// Hurry implements sched.Scheduler. The steps' models are told themselves.
func (s *Scheduler) Hurry() {}

// Close implements sched.Scheduler. A request has ended when its Do has.
func (s *Scheduler) Close() {}

// Add implements sched.Scheduler.
func (s *Scheduler) Add(...backend.Instance) error {
	return status.Errorf(status.Unsupported, "ensemble '%s' has no instances of its own", s.graph.Name)
}

// Remove implements sched.Scheduler.
func (s *Scheduler) Remove(backend.Instance) {}
