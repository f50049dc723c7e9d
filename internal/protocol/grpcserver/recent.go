package grpcserver

import "slices"

// recent holds the streams that were ended last before the client had ended
// them: what the client sent before it knew is not an error.
type recent struct {
	ids  []uint32 // a ring once it is full
	next int
}

// maxRecent is more than a client has in transit for streams that are over, and
// takes little memory.
const maxRecent = 256

func (r *recent) add(id uint32) {
	if len(r.ids) < maxRecent {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % maxRecent
}

// remove removes a stream that the client has ended too.
func (r *recent) remove(id uint32) {
	if i := slices.Index(r.ids, id); i >= 0 {
		r.ids[i] = 0 // not a stream
	}
}

func (r *recent) has(id uint32) bool { return slices.Contains(r.ids, id) }
