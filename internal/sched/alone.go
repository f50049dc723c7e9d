package sched

// alone counts the batches of a caller that is alone, one after the other. There is nothing to
// decide for it, so most of its batches need not be learned from: that costs 0.2 us, as much
// as a hundredth of a short request.
type alone int

const (
	// Of all batches after the first aloneSampled, so many of every aloneSampled count.
	aloneSampled = 64
	aloneSample  = 8
)

// counts notes a batch, and reports whether it is to be learned from.
func (a *alone) counts(r *Run) bool {
	if r.Requests != 1 || r.InFlight != 1 {
		*a = 0
		return true
	}
	*a++
	return *a <= aloneSampled || *a%aloneSampled < aloneSample
}
