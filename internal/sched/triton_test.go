package sched

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// waiting lists candidates of these sizes that were queued at epoch.
func waiting(sizes ...int) []Candidate {
	var list []Candidate
	for _, n := range sizes {
		list = append(list, Candidate{Rows: n, Queued: epoch})
	}
	return list
}

// other marks the last candidate as one that cannot be in the batch.
func other(list []Candidate) []Candidate {
	list[len(list)-1].Differs = true
	return list
}

// expiring gives the last candidate a deadline.
func expiring(list []Candidate, after time.Duration) []Candidate {
	list[len(list)-1].Expires = epoch.Add(after)
	return list
}

const (
	idle, preferred, full, delay = infer.ReasonIdle, infer.ReasonPreferred, infer.ReasonFull, infer.ReasonDelay
	second                       = time.Second
)

func TestDecide(t *testing.T) {
	// The worked examples of Triton's own batcher tests: at most 8 rows, sizes 2
	// and 6 preferred, a delay of ten seconds.
	slow := Triton{MaxRows: 8, Preferred: []int{2, 6}, Delay: 10 * second}
	// No delay, sizes 4 and 6 preferred.
	eager := Triton{MaxRows: 8, Preferred: []int{4, 6}}
	// What an empty dynamic_batching means.
	plain := Triton{MaxRows: 8, Preferred: []int{8}}
	patient := Triton{MaxRows: 8, Preferred: []int{8}, Delay: 10 * second}

	tests := []struct {
		name   string
		policy Triton
		age    time.Duration
		open   int
		queue  []Candidate
		want   Decision
	}{
		{"nothing waits", slow, 0, 0, nil, Decision{}},
		{"a preferred size goes at once", slow, 0, 0, waiting(2), Decision{Take: 1, Reason: preferred}},
		{"the largest preferred size goes at once", slow, 0, 0, waiting(6), Decision{Take: 1, Reason: preferred}},
		{"one row waits for the delay", slow, 0, 0, waiting(1), Decision{Wait: 10 * second, More: 1}},
		{"three rows wait for the delay and for six", slow, 0, 0, waiting(3), Decision{Wait: 10 * second, More: 3}},
		{"the wait is what is left of the delay", slow, 4 * second, 0, waiting(1), Decision{Wait: 6 * second, More: 1}},
		{"the delay is up", slow, 10 * second, 0, waiting(1), Decision{Take: 1, Reason: delay}},
		{"a request larger than the largest preferred size goes alone at once", slow, 0, 0, waiting(7), Decision{Take: 1, Close: true, Reason: full}},
		{"1, later 3: one batch of 4 when the delay of the first is up", slow, 10 * second, 0, waiting(1, 3), Decision{Take: 2, Reason: delay}},
		{"1 and 3 wait together", slow, 0, 0, waiting(1, 3), Decision{Wait: 10 * second, More: 2}},
		{"3, then 7: the 3 goes since 7 does not fit", slow, 0, 0, waiting(3, 7), Decision{Take: 1, Close: true, Reason: preferred}},
		{"then the 7 goes at once", slow, 0, 0, waiting(7), Decision{Take: 1, Close: true, Reason: full}},
		{"3, then 4: the 3 goes since 4 would pass 6", slow, 0, 0, waiting(3, 4), Decision{Take: 1, Close: true, Reason: preferred}},
		{"then the 4 waits its delay", slow, 0, 0, waiting(4), Decision{Wait: 10 * second, More: 2}},
		{"1, 3, then one of another shape: the 4 rows go sealed", slow, 0, 0, other(waiting(1, 3, 1)), Decision{Take: 2, Close: true, Seal: true, Reason: full}},
		{"six single rows make the larger preferred size", slow, 0, 0, waiting(1, 1, 1, 1, 1, 1), Decision{Take: 6, Reason: preferred}},
		{"three single rows: two go", slow, 0, 0, waiting(1, 1, 1), Decision{Take: 2, Reason: preferred}},
		{"3, 4, 1 past the delay: preferred sizes are ignored", slow, 11 * second, 0, waiting(3, 4, 1), Decision{Take: 3, Close: true, Reason: delay}},
		{"2, 7: the mark at 2 is kept and the batch stays open", slow, 0, 0, waiting(2, 7), Decision{Take: 1, Reason: preferred}},

		{"no delay: four single rows go", eager, 0, 0, waiting(1, 1, 1, 1), Decision{Take: 4, Close: true, Reason: preferred}},
		{"no delay: five go as four", eager, 0, 0, waiting(1, 1, 1, 1, 1), Decision{Take: 4, Close: true, Reason: preferred}},
		{"no delay: the one left goes right after", eager, 0, 0, waiting(1), Decision{Take: 1, Reason: idle}},
		{"no delay: seven go as six", eager, 0, 0, waiting(1, 1, 1, 1, 1, 1, 1), Decision{Take: 6, Close: true, Reason: preferred}},
		{"no delay: three go and the batch stays open", eager, 0, 0, waiting(1, 1, 1), Decision{Take: 3, Reason: idle}},
		{"no delay: an open batch grows", plain, 0, 3, waiting(1, 1), Decision{Take: 2, Reason: idle}},
		{"no delay: an open batch closes when it is full", plain, 0, 7, waiting(1, 1), Decision{Take: 1, Close: true, Reason: full}},
		{"no delay: a request that does not fit closes the open batch", plain, 0, 7, waiting(2), Decision{Close: true, Reason: full}},
		{"no delay: the rows that fit go before one that does not", plain, 0, 0, waiting(3, 3, 3), Decision{Take: 2, Close: true, Reason: full}},
		{"another shape closes and seals the open batch", plain, 0, 3, other(waiting(1)), Decision{Close: true, Seal: true, Reason: full}},
		{"the first request of a batch is never too large", plain, 0, 0, waiting(9), Decision{Take: 1, Close: true, Reason: full}},

		{"the largest preferred size is a soft limit for an open batch", Triton{MaxRows: 8, Preferred: []int{6}, Delay: second}, 0, 3, waiting(4), Decision{Take: 1, Close: true, Reason: full}},
		{"with the default sizes waiting goes on until the batch is full", patient, 0, 0, waiting(1, 2, 4), Decision{Wait: 10 * second, More: 1}},
		{"the batch is full", patient, 0, 0, waiting(1, 2, 4, 1), Decision{Take: 4, Reason: full}},
		{"an open batch that has no preferred size takes what arrives", patient, 0, 3, waiting(1), Decision{Take: 1, Reason: delay}},
		{"an open batch of a preferred size does not", slow, 0, 2, waiting(1), Decision{Wait: 10 * second, More: 3}},
		{"a request's own timeout comes before the delay", patient, 0, 0, expiring(waiting(1), 3*second), Decision{Wait: 3 * second, More: 7}},
		{"a timeout after the delay does not matter", patient, 0, 0, expiring(waiting(1), 30*second), Decision{Wait: 10 * second, More: 7}},
		{"one row at most: each goes alone at once", Triton{MaxRows: 1, Preferred: []int{1}}, 0, 0, waiting(1, 1), Decision{Take: 1, Close: true, Reason: full}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			view := View{Now: epoch.Add(tt.age), Open: tt.open, Queue: tt.queue, Instances: 1, Idle: 1}
			if diff := cmp.Diff(tt.want, tt.policy.Decide(&view)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideIsSound holds any decision against what must hold for all of them.
func TestDecideIsSound(t *testing.T) {
	policies := []Triton{
		{MaxRows: 8, Preferred: []int{8}},
		{MaxRows: 8, Preferred: []int{2, 6}, Delay: second},
		{MaxRows: 4, Preferred: []int{3}, Delay: second},
		{MaxRows: 1, Preferred: []int{1}},
	}
	for _, p := range policies {
		for open := range p.MaxRows + 1 {
			for seed := range 6 * 6 * 6 * 2 * 2 {
				q := waiting(1+seed%6, 1+seed/6%6, 1+seed/36%6)
				if seed/216%2 == 1 {
					q[1].Differs = true
				}
				age := time.Duration(seed/432) * 2 * second
				d := p.Decide(&View{Now: epoch.Add(age), Open: open, Queue: q, Instances: 1, Idle: 1})
				rows := open
				for _, c := range q[:d.Take] {
					rows += c.Rows
				}
				switch {
				case d.Take > 1 && rows > p.MaxRows, open > 0 && d.Take > 0 && rows > p.MaxRows:
					t.Fatalf("policy %+v, open %d, queue %v: got a batch of %d rows, want at most %d", p, open, q, rows, p.MaxRows)
				case d.Take > 1 && q[1].Differs:
					t.Fatalf("policy %+v, open %d, queue %v: got two that differ in a batch", p, open, q)
				case d.Take == 0 && !d.Close && d.Wait <= 0:
					t.Fatalf("policy %+v, open %d, queue %v: got neither a batch nor a wait", p, open, q)
				case d.Take == 0 && p.Delay == 0 && !d.Close:
					t.Fatalf("policy %+v, open %d, queue %v: got a wait without a delay", p, open, q)
				}
			}
		}
	}
}
