package sched

// alone counts successive batches of a caller that is the only one. There is nothing to
// decide for it, so most of its batches are not learned from: that takes 0.2 us, a hundredth of
// a short request.
type alone int

const (
	// The first alonePeriod batches are learned from, and later the first aloneSample of
	// each further alonePeriod.
	alonePeriod = 64
	aloneSample = 8
)

// learnsFrom counts a batch, and reports whether it is to be learned from.
func (a *alone) learnsFrom(r *Run) bool {
	if r.Requests != 1 || r.InFlight != 1 {
		*a = 0
		return true
	}
	*a++
	return *a <= alonePeriod || (*a-1)%alonePeriod < aloneSample
}
