package top

import (
	"context"
	"sync"
	"time"
)

// A Poller reads servers repeatedly and reports what happened in between. It is
// for one goroutine.
type Poller struct {
	targets []Target
	clients []*Client
	last    []*Sample // by target; nil before the first, and after a failure
}

// NewPoller returns a poller. It gives up on an answer after timeout.
func NewPoller(targets []Target, timeout time.Duration) *Poller {
	p := &Poller{targets: targets, last: make([]*Sample, len(targets))}
	for _, t := range targets {
		p.clients = append(p.clients, NewClient(t, timeout))
	}
	return p
}

// Poll reads all servers concurrently. A server that cannot be read has its
// error in the report.
func (p *Poller) Poll(ctx context.Context) Report {
	samples, errs := make([]*Sample, len(p.targets)), make([]error, len(p.targets))
	var wg sync.WaitGroup
	for i, c := range p.clients {
		wg.Go(func() { samples[i], errs[i] = c.Sample(ctx) })
	}
	wg.Wait()
	r := Report{Time: time.Now(), Models: []Row{}}
	for i, t := range p.targets {
		server := Server{URL: t.URL}
		before, now := p.last[i], samples[i]
		p.last[i] = now
		if errs[i] != nil {
			server.Error = errs[i].Error()
			r.Servers = append(r.Servers, server)
			continue
		}
		if now.NoMetrics != nil {
			server.NoDetail = now.NoMetrics.Error()
		}
		if before != nil {
			server.Interval = now.At.Sub(before.At).Seconds()
			server.Rejected = now.Rejected.since(before.Rejected, server.Interval)
			server.Closed = now.Closed.since(before.Closed, server.Interval)
		}
		server.AllRejected, server.AllClosed = now.Rejected.sum(), now.Closed.sum()
		server.CPU, server.GPUs = now.CPU, now.GPUs
		r.Servers = append(r.Servers, server)
		r.Models = append(r.Models, compare(t.URL, before, now)...)
	}
	r.Total = total(r.Models)
	for i := range r.Servers {
		s := &r.Servers[i]
		r.Total.AllRejected = plus(r.Total.AllRejected, s.AllRejected)
		r.Total.setRejected(r.Total.RejectedByReason.plus(s.Rejected))
	}
	return r
}

// Once reports what happens in one interval from now on.
func Once(ctx context.Context, p *Poller, interval time.Duration) (Report, error) {
	r := p.Poll(ctx)
	if r.Failed() {
		return r, ctx.Err() // waiting would not help
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return r, ctx.Err()
	}
	return p.Poll(ctx), ctx.Err()
}
