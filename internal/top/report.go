package top

import (
	"slices"
	"time"
)

// A Report is what happened on some servers between two readings. A nil pointer
// means unknown.
type Report struct {
	Time    time.Time `json:"time"`
	Servers []Server  `json:"servers"`
	Models  []Row     `json:"models"`
	Total   Row       `json:"total"`
}

// A Server is the state of a server as a whole.
type Server struct {
	URL      string   `json:"url"`
	Error    string   `json:"error,omitempty"`      // why nothing could be read
	NoDetail string   `json:"no_metrics,omitempty"` // why some is missing
	CPU      *float64 `json:"cpu_utilization"`
	GPUs     []GPU    `json:"gpus,omitempty"`
	Interval float64  `json:"interval_seconds"` // of rates and quantiles

	// Requests for no model that exists, and connections that a limit closed.
	Rejected    Rejects  `json:"rejected_per_second_by_reason,omitempty"`
	AllRejected *float64 `json:"rejected_total"`
	Closed      Rejects  `json:"connections_closed_per_second_by_reason,omitempty"`
	AllClosed   *float64 `json:"connections_closed_total"`
}

// A Row is the state of a version of a model.
type Row struct {
	Server  string `json:"server,omitempty"`
	Model   string `json:"model,omitempty"`
	Version string `json:"version,omitempty"`
	State   string `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"`

	// In the interval.
	Requests *float64           `json:"requests_per_second"`
	Rows     *float64           `json:"rows_per_second"`
	Mean     *float64           `json:"mean_seconds"`
	P50      *float64           `json:"p50_seconds"`
	P99      *float64           `json:"p99_seconds"`
	QueueP99 *float64           `json:"queue_p99_seconds"`
	Batch    *float64           `json:"mean_batch"`
	Failures *float64           `json:"failures_per_second"`
	Refused  *float64           `json:"refused_per_second"`
	Rejected *float64           `json:"rejected_per_second"`
	ByReason map[string]float64 `json:"batches_per_second_by_reason,omitempty"`
	// RejectedByReason is Rejected in its parts.
	RejectedByReason Rejects `json:"rejected_per_second_by_reason,omitempty"`
	// BusyShare is the share of the interval for which the instances ran.
	BusyShare *float64 `json:"busy_share"`
	Queue     *float64 `json:"queue_depth"` // now, as the two below
	Busy      *float64 `json:"instances_busy"`
	Instances *float64 `json:"instances"`

	// Since the version was loaded.
	AllRequests *float64 `json:"requests_total"`
	AllFailures *float64 `json:"failures_total"`
	AllRefused  *float64 `json:"refused_total"`
	AllRejected *float64 `json:"rejected_total"`

	interval delta
	trend    []float64 // Requests of the last intervals; only the live view has it
}

// A delta is the difference between two samples, from which rows are made and
// totals added up.
type delta struct {
	seconds                     float64
	stats                       Stats
	refused                     float64
	busy, capacity              float64 // seconds that instances ran, and that they could have
	requestTime, queueTime      *Spread
	known, timed, refusalsKnown bool
}

// compare returns the rows of a server: what happened between before, which may
// be nil, and now.
func compare(server string, before, now *Sample) []Row {
	rows := make([]Row, 0, len(now.Models))
	for i := range now.Models {
		m := &now.Models[i]
		var old *Model
		seconds := 0.0
		if before != nil {
			old = before.find(m.Name, m.Version)
			seconds = now.At.Sub(before.At).Seconds()
		}
		rows = append(rows, row(server, old, m, seconds))
	}
	return rows
}

func row(server string, old, now *Model, seconds float64) Row {
	r := Row{
		Server: server, Model: now.Name, Version: now.Version, State: now.State, Reason: now.Reason,
		Queue: now.Queue, Busy: now.Busy, Instances: now.Instances, AllRefused: now.Refused, AllRejected: now.Rejected.sum(),
	}
	if now.Stats != nil {
		r.AllRequests, r.AllFailures = &now.Stats.Success, &now.Stats.Fail
	}
	if old == nil || seconds <= 0 {
		return r
	}
	d := &r.interval
	d.seconds = seconds
	if now.Stats != nil {
		d.known, d.stats = true, now.Stats.since(old.Stats)
	}
	if now.Refused != nil {
		d.refusalsKnown, d.refused = true, rise(old.Refused, *now.Refused)
	}
	if now.BusySeconds != nil && old.BusySeconds != nil && now.Instances != nil {
		d.busy, d.capacity = rise(old.BusySeconds, *now.BusySeconds), *now.Instances*seconds
	}
	if now.RequestTime != nil && now.QueueTime != nil {
		d.timed = true
		d.requestTime, d.queueTime = now.RequestTime.since(old.RequestTime), now.QueueTime.since(old.QueueTime)
	}
	r.setRejected(now.Rejected.since(old.Rejected, seconds))
	for reason, n := range now.BatchesByReason {
		if r.ByReason == nil {
			r.ByReason = make(map[string]float64)
		}
		r.ByReason[reason] = rise(new(old.BatchesByReason[reason]), n) / seconds
	}
	r.work()
	return r
}

func (r *Row) setRejected(rates Rejects) {
	r.RejectedByReason, r.Rejected = rates, rates.sum()
}

// work fills in the figures of the interval.
func (r *Row) work() {
	d := &r.interval
	if d.known {
		r.Requests, r.Rows = new(d.stats.Success/d.seconds), new(d.stats.Inferences/d.seconds)
		r.Failures = new(d.stats.Fail / d.seconds)
		r.Mean = ratio(d.stats.SuccessNs/1e9, d.stats.Success)
		if d.stats.Inferences > 0 { // runs that failed have no rows
			r.Batch = ratio(d.stats.Inferences, d.stats.Executions)
		}
	}
	if d.refusalsKnown {
		r.Refused = new(d.refused / d.seconds)
	}
	if share := ratio(d.busy, d.capacity); share != nil {
		r.BusyShare = new(min(*share, 1)) // the metrics were not read at one moment
	}
	if d.timed {
		r.P50, r.P99, r.QueueP99 = d.requestTime.quantile(0.5), d.requestTime.quantile(0.99), d.queueTime.quantile(0.99)
	}
}

// since returns the increase since old; everything when old is nil or the
// counters were reset.
func (s *Stats) since(old *Stats) Stats {
	if old == nil || s.Success < old.Success || s.Fail < old.Fail || s.Executions < old.Executions {
		return *s
	}
	return Stats{
		Success: s.Success - old.Success, SuccessNs: s.SuccessNs - old.SuccessNs, Fail: s.Fail - old.Fail,
		QueueNs: s.QueueNs - old.QueueNs, Inferences: s.Inferences - old.Inferences, Executions: s.Executions - old.Executions,
	}
}

// rise returns how much a counter rose.
func rise(old *float64, now float64) float64 {
	if old == nil || now < *old {
		return now
	}
	return now - *old
}

func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	return new(a / b)
}

// total adds the rows up. Quantiles and means are over all their requests.
func total(rows []Row) Row {
	sum := Row{}
	d := &sum.interval
	for i := range rows {
		r := &rows[i]
		sum.Queue, sum.Busy, sum.Instances = plus(sum.Queue, r.Queue), plus(sum.Busy, r.Busy), plus(sum.Instances, r.Instances)
		sum.AllRequests, sum.AllFailures, sum.AllRefused = plus(sum.AllRequests, r.AllRequests), plus(sum.AllFailures, r.AllFailures), plus(sum.AllRefused, r.AllRefused)
		sum.AllRejected = plus(sum.AllRejected, r.AllRejected)
		sum.setRejected(sum.RejectedByReason.plus(r.RejectedByReason))
		d.add(&r.interval)
		for reason, n := range r.ByReason {
			if sum.ByReason == nil {
				sum.ByReason = make(map[string]float64)
			}
			sum.ByReason[reason] += n
		}
	}
	if d.seconds > 0 {
		sum.work()
	}
	return sum
}

// add adds o. The intervals of servers differ by how fast they answer, so the
// counts are scaled to the first server's interval.
func (d *delta) add(o *delta) {
	if o.seconds == 0 {
		return
	}
	if d.seconds == 0 {
		d.seconds = o.seconds
		d.requestTime, d.queueTime = &Spread{}, &Spread{}
	}
	f := d.seconds / o.seconds
	if o.known {
		d.known = true
		d.stats.Success += f * o.stats.Success
		d.stats.SuccessNs += f * o.stats.SuccessNs
		d.stats.Fail += f * o.stats.Fail
		d.stats.Inferences += f * o.stats.Inferences
		d.stats.Executions += f * o.stats.Executions
	}
	d.busy, d.capacity = d.busy+f*o.busy, d.capacity+f*o.capacity
	if o.refusalsKnown {
		d.refusalsKnown, d.refused = true, d.refused+f*o.refused
	}
	if o.timed {
		d.timed, d.requestTime, d.queueTime = true, d.requestTime.plus(o.requestTime), d.queueTime.plus(o.queueTime)
	}
}

func plus(a, b *float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(*a + *b)
}

// Failed reports whether no server could be read.
func (r *Report) Failed() bool {
	return !slices.ContainsFunc(r.Servers, func(s Server) bool { return s.Error == "" })
}
